"""The live view while a recorded incident develops in a real Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.watch.replayed import Replayed, replayed
from tests.watch.terminal import Terminal, environment, now_of, row_of

pytestmark = pytest.mark.server
_CALM = "No incident in this window"
_SECOND = "sequence_limit"
# Seven times the requests: it is felt some 20 s after its onset, and 5 s later a second limit binds.
_RECORDING = "load_burst"
_BEFORE_SYMPTOM_SECONDS = 5.0


def _diag(*arguments: str, folder: Path, piped_through: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "diag", *arguments]
    if piped_through:
        command = ["bash", "-o", "pipefail", "-c", f'"$@" | {piped_through}', "bash", *command]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, env=environment(), cwd=folder
    )


def _seen_at(screen: str) -> str:
    found = re.search(r"seen ([0-9:]+) UTC", screen)
    assert found is not None, screen
    return found[1]


def test_a_recorded_incident_develops_on_the_screen(incidents: Path, tmp_path: Path) -> None:
    store_folder, folder = tmp_path / "store", tmp_path / "seat"
    store_folder.mkdir()
    folder.mkdir()
    with replayed(incidents / _RECORDING, store_folder, since_onset_seconds=_BEFORE_SYMPTOM_SECONDS) as store:
        command = [sys.executable, "-m", "diag", "watch", store.url, "--every", "1s"]
        with Terminal(command, folder=folder) as terminal:
            _develops(terminal, store.leading)
            _stands_still_while_paused(terminal, store, folder)
            _shows_another_window(terminal, store.leading)
            _opens_the_leading_cause(terminal, store.leading)
            _saves_what_it_shows(terminal, store.leading, folder)
            _fits_a_small_terminal(terminal, store.leading)
            _loses_its_store_and_finds_it_again(terminal, store)


def _develops(terminal: Terminal, leading: str) -> None:
    """Calm, then the symptom with its cause, then a second one that comes and goes."""
    calm = terminal.shows(_CALM)
    assert leading not in calm
    assert float(now_of(calm, "waiting").split()[0]) < 2
    felt = terminal.shows(f"leading cause: nothing wrong → {leading}")
    assert re.search(r"first tokens went from [\d.]+ ms to [\d.]+ s", felt, re.IGNORECASE)
    assert _CALM not in felt
    assert row_of(felt, "1  ")[1:3] == [leading, "supported"]
    assert re.search(rf"{leading}: [a-z ]+ → supported", felt), felt
    assert float(now_of(felt, "waiting").split()[0]) > 5
    second = terminal.until(lambda seen: row_of(seen, "2  ")[1:3] == [_SECOND, "supported"])
    assert re.search(rf"{_SECOND}: [a-z ]+ → supported \(confidence \d+ %\)", second)
    assert row_of(second, "1  ")[1] == leading


def _stands_still_while_paused(terminal: Terminal, store: Replayed, folder: Path) -> None:
    """The pipes are tried meanwhile: they take several looks' time, and see the incident go on."""
    terminal.press("p")
    paused = terminal.until(lambda seen: " paused" in seen)
    _tells_a_pipe(store, folder)
    assert terminal.seen() == paused
    terminal.press("p")
    terminal.until(lambda seen: " paused" not in seen and _seen_at(seen) > _seen_at(paused))


def _tells_a_pipe(store: Replayed, folder: Path) -> None:
    once = _diag("watch", store.url, "--once", folder=folder)
    (line,) = _diag("watch", store.url, "--once", "--json", folder=folder).stdout.splitlines()
    verdict = json.loads(line)
    assert (verdict["schema"], verdict["leading"]) == ("diag.verdict/1", store.leading)
    through = _diag("watch", store.url, "--every", "1s", folder=folder, piped_through="cat")
    for text in (once.stdout, through.stdout):
        assert row_of(text, "1  ")[1:3] == [store.leading, "supported"]
        assert "\x1b" not in text
        assert max(len(row) for row in text.splitlines()) <= 100


def _shows_another_window(terminal: Terminal, leading: str) -> None:
    """Nearer. The store holds a few minutes: their course fills the line, however much was asked for."""
    hour = terminal.shows("last 60 min")
    assert row_of(hour, "waiting")[1].count("·") < 10
    terminal.press("-", "-", "-", "-")
    nearer = terminal.until(
        lambda seen: "last 300 s," in seen and row_of(seen, "1  ")[1:3] == [leading, "supported"]
    )
    assert "window: last 300 s" in nearer
    assert row_of(nearer, "waiting")[1].count("·") < 10


def _opens_the_leading_cause(terminal: Terminal, leading: str) -> None:
    terminal.press("1")
    opened = terminal.shows("  do (safe): ")
    assert f"{leading}: More requests arrive than the engine can serve" in opened
    assert re.search(r"^  for: request rate went from [\d.]+/s to [\d.]+/s$", opened, re.MULTILINE)
    assert "  hits instances vllm-0:8000" in opened
    terminal.press("0")
    terminal.until(lambda seen: row_of(seen, "1  ")[1:2] == [leading])


def _saves_what_it_shows(terminal: Terminal, leading: str, folder: Path) -> None:
    terminal.press("s")
    terminal.shows("wrote diag-")
    (bundle,) = folder.glob("diag-*.zip")
    told = _diag("triage", bundle.name, "--format", "json", folder=folder)
    assert json.loads(told.stdout)["leading"] == leading


def _fits_a_small_terminal(terminal: Terminal, leading: str) -> None:
    for width, height in ((80, 24), (50, 20)):
        terminal.resize(width, height)
        terminal.until(partial(_is_whole_within, leading=leading, width=width, height=height))
    terminal.resize(110, 40)
    terminal.until(lambda seen: _is_whole(seen, leading) and "preemptions" in seen)


def _is_whole_within(screen: str, *, leading: str, width: int, height: int) -> bool:
    lines = screen.splitlines()
    return max(map(len, lines)) <= width and len(lines) <= height and _is_whole(screen, leading)


def _is_whole(screen: str, leading: str) -> bool:
    """What an operator needs is there, from the head to the keys."""
    in_order = ["diag watch", "irst tokens went from", f"1  {leading}", "just changed", "q quit"]
    places = [screen.find(text) for text in in_order]
    return -1 not in places and places == sorted(places)


def _loses_its_store_and_finds_it_again(terminal: Terminal, store: Replayed) -> None:
    store.stop()
    gone = terminal.shows("source does not answer since")
    assert "what follows is old" in gone
    assert "connection refused" in gone
    assert row_of(gone, "signal")[2] == "last"
    # What was seen last stays, and nothing that was above zero falls to it.
    assert row_of(gone, "1  ")[1] == store.leading
    assert float(now_of(gone, "waiting").split()[0]) > 5
    terminal.press("s")
    terminal.shows("no bundle: cannot reach")
    store.start()
    back = terminal.shows("the source answers again")
    assert "what follows is old" not in back
    assert _seen_at(back) > _seen_at(gone)
    assert row_of(back, "1  ")[1:3] == [store.leading, "supported"]
    assert row_of(back, "signal")[2] == "now"
