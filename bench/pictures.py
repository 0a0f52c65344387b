"""Draw the README's pictures of a report and of the live view: ``python -m bench.pictures``.

Both are of a shipped recording and drawn by Chromium from what an operator would get."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from diag import api
from diag.api.reports import report_for
from diag.api.watching import Watching
from diag.renderers.report.html import render
from diag.sources.protocol import Question
from diag.watch.history import History
from diag.watch.screen import Showing, screen

__all__ = ["main"]

_CHECKOUT = Path(__file__).resolve().parents[1]
_RECORDING = "tests/incidents/context_growth_reference"
_COLUMNS = 108


def main() -> int:
    """Write docs/pictures; 1 without Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("pictures: chromium is not installed", file=sys.stderr)
        return 1
    folder = _CHECKOUT / "docs" / "pictures"
    folder.mkdir(exist_ok=True)
    verdict = api.demo("context_growth")
    _shot(chromium, render(report_for(verdict), version=verdict.version), folder / "report.png", (1000, 1500))
    _shot(chromium, _watched(), folder / "watch.png", (1000, 560))
    return 0


def _watched() -> str:
    """The live view as a page; the clock stands where the recording ends."""
    source = _CHECKOUT / _RECORDING
    with Watching([str(source)], Question(now=0.0), window_seconds=600.0) as watching:
        look = watching.look(0.0)
    history = History()
    history.seen(look)
    console = Console(
        file=io.StringIO(), width=_COLUMNS, record=True, highlight=False, force_terminal=True,
        color_system="truecolor",
    )  # fmt: skip
    console.print(screen(history, Showing(_RECORDING, 600.0, 15.0), _COLUMNS))
    body = console.export_html(theme=MONOKAI, inline_styles=True, code_format="{code}")
    colors = "background:#0d1117;color:#e6edf3;margin:0;padding:18px"
    style = f"{colors};font:14px/1.35 'DejaVu Sans Mono',monospace"
    shown = f'<pre style="font:inherit">{body}</pre>'
    return f'<!doctype html><meta charset="utf-8"><body style="{style}">{shown}</body>'


def _shot(chromium: str, page: str, target: Path, size: tuple[int, int]) -> None:
    with tempfile.TemporaryDirectory(prefix="diag-pictures-") as folder:
        file = Path(folder) / "page.html"
        # A page of a fixed look: dark or light is not to hang on who draws it.
        file.write_text(
            re.sub(r"@media \(prefers-color-scheme: dark\)", "@media (width: 1px)", page), "utf-8"
        )
        command = [
            chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--no-first-run",
            f"--user-data-dir={folder}/profile", f"--window-size={size[0]},{size[1]}",
            f"--screenshot={target}", file.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    print(f"wrote {target.relative_to(_CHECKOUT)}")


if __name__ == "__main__":
    sys.exit(main())
