"""The page in a real Chromium: what it shows, what it asks for, what it prints."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import matplotlib.image as mpimg
import numpy as np
import pytest

from diag.api.reports import report_for
from diag.model import Verdict
from diag.renderers.report.html import render as as_html

pytestmark = pytest.mark.server
_A4_POINTS = (595, 842)
# What the browser asks for on its own behalf, page or no page; the proxy that nobody runs refuses it.
_CHROMIUM_ITSELF = re.compile(r"^https?://[\w.-]*(google|googleapis|gvt1)\.com/")
_LEAST_CONTRAST = 4.5  # WCAG 2.2, 1.4.3


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed: apt-get install chromium")
        pytest.skip("chromium is not installed")
    return found


def _page_of(verdict: Verdict, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(as_html(report_for(verdict), version="0"), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def recorded_page(recorded: Verdict, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _page_of(recorded, tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="session")
def hostile_page(hostile: Verdict, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _page_of(hostile, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(params=["recorded_page", "hostile_page"])
def page(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def opened(chromium: str, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Chromium without a network, run once over the page."""
    return subprocess.run(
        [
            chromium,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={page.parent / 'profile'}",
            "--proxy-server=127.0.0.1:9",
            "--enable-logging=stderr",
            "--window-size=1000,2400",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def asked_for(chromium: str, page: Path) -> tuple[list[str], str]:
    """The addresses outside that showing ``page`` asks for, and what Chromium logged meanwhile."""
    log = page.parent / f"{page.stem}.net.json"
    ran = opened(chromium, page, f"--log-net-log={log}", "--dump-dom")
    assert "</html>" in ran.stdout
    urls = set(re.findall(r'"url":"(https?://[^"]*)"', log.read_text(encoding="utf-8", errors="replace")))
    return [url for url in urls if not _CHROMIUM_ITSELF.search(url)], ran.stderr


def test_nothing_leaves_and_nothing_complains(chromium: str, page: Path) -> None:
    asked, said = asked_for(chromium, page)
    assert asked == []
    assert "CONSOLE" not in said


def test_a_page_that_asks_would_be_seen(chromium: str, recorded_page: Path) -> None:
    page = recorded_page
    loose = re.sub(r"<meta http-equiv=[^>]*>", "", page.read_text(encoding="utf-8"))
    caught = page.parent / "loose.html"
    image = '<main><img alt="" src="http://127.0.0.1:9/seen.png">'
    caught.write_text(loose.replace("<main>", image), encoding="utf-8")
    assert asked_for(chromium, caught)[0] == ["http://127.0.0.1:9/seen.png"]


@pytest.mark.parametrize("dark", [False, True])
def test_charts_are_drawn_in_light_and_dark(chromium: str, recorded_page: Path, dark: bool) -> None:
    page = recorded_page
    shot = page.parent / f"shot{dark}.png"
    opened(
        chromium,
        page,
        f"--screenshot={shot}",
        *(
            ["--blink-settings=preferredColorScheme=0"]
            if dark
            else ["--blink-settings=preferredColorScheme=1"]
        ),
    )
    pixels = colors(shot)
    scheme = _schemes(page.read_text(encoding="utf-8"))["dark" if dark else "light"]
    paper, line = _rgb(scheme["--paper"]), _rgb(scheme["--line-1"])
    assert max(pixels, key=lambda c: pixels[c]) == paper
    assert pixels.get(line, 0) > 150


def test_it_prints_on_a4(chromium: str, recorded_page: Path) -> None:
    page = recorded_page
    pdf = page.parent / "report.pdf"
    opened(chromium, page, f"--print-to-pdf={pdf}", "--no-pdf-header-footer")
    body = pdf.read_bytes()
    boxes = re.findall(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)\s*\]", body)
    assert boxes
    for box in boxes:
        assert [round(float(n)) for n in box] == pytest.approx(_A4_POINTS, abs=1)


def test_text_stands_out_from_its_ground(page: Path) -> None:
    for name, scheme in _schemes(page.read_text(encoding="utf-8")).items():
        for ink in ("--ink", "--soft", "--accent", "--mark", "--line-1", "--line-2", "--line-3", "--line-4"):
            for ground in ("--paper", "--card"):
                ratio = contrast(scheme[ink], scheme[ground])
                assert ratio >= _LEAST_CONTRAST, (name, ink, ground, ratio)


def test_keyboard_and_screen_reader_find_their_way(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    first = re.search(r"<body>\s*<(\w+) class=\"(\w+)\" href=\"#(\w+)\"", text)
    assert first is not None
    assert first.groups() == ("a", "skip", "summary")
    assert 'id="summary"' in text
    assert '<html lang="en">' in text
    for drawing in re.findall(r"<svg [^>]*>", text):
        assert 'role="img"' in drawing
        assert re.search(r'aria-label="[^"]{20,}"', drawing)
    levels = [int(n) for n in re.findall(r"<h(\d)[ >]", text)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert text.count("<th scope=") >= text.count("<tr>") > 0


def _schemes(text: str) -> Mapping[str, Mapping[str, str]]:
    blocks = re.findall(r":root \{([^}]*)\}", text)
    light, dark = (dict(re.findall(r"(--[\w-]+):\s*(#[0-9a-f]{3,6})", block)) for block in blocks[:2])
    return {"light": light, "dark": {**light, **dark}}


def _rgb(color: str) -> tuple[int, int, int]:
    digits = color.lstrip("#")
    wide = digits if len(digits) == 6 else "".join(2 * d for d in digits)
    red, green, blue = (int(wide[i : i + 2], 16) for i in (0, 2, 4))
    return red, green, blue


def contrast(a: str, b: str) -> float:
    """WCAG's ratio of relative luminances."""

    def luminance(color: str) -> float:
        parts = [c / 255 for c in _rgb(color)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def colors(path: Path) -> dict[tuple[int, int, int], int]:
    """How often each colour occurs in a picture, from 0 to 255 a channel."""
    shades = np.round(255 * mpimg.imread(path)[:, :, :3]).astype(int) @ np.array([65536, 256, 1])
    found, counts = np.unique(shades, return_counts=True)
    known = zip(found.tolist(), counts.tolist(), strict=True)
    return {(c >> 16, c >> 8 & 255, c & 255): n for c, n in known}
