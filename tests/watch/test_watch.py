"""What the live view shows, and what it never shows."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from diag.api.watching import Look, Watching
from diag.errors import DiagError
from diag.model import Series, State, Verdict
from diag.sources.protocol import Question
from diag.watch.history import History
from diag.watch.keys import Keys
from diag.watch.running import _fitted, _look, _react, _Shared
from diag.watch.screen import Showing, screen
from diag.watch.sparks import GAP, spark

RECORDING = Path(__file__).parents[1] / "incidents" / "context_growth_reference"
NOW = 1796000000.0


@pytest.fixture(scope="module")
def look() -> Look:
    with Watching([str(RECORDING)], Question(now=NOW), window_seconds=3600.0, clock=lambda: NOW) as watching:
        return watching.look(2.0)


def shown(history: History, showing: Showing | None = None, width: int = 100) -> str:
    to = io.StringIO()
    console = Console(file=to, width=width, no_color=True, highlight=False)
    console.print(screen(history, showing or Showing("http://store", 3600.0, 15.0), width))
    return to.getvalue()


def changed(verdict: Verdict, id: str, **fields: object) -> Verdict:
    return replace(
        verdict,
        assessments=tuple(replace(a, **fields) if a.id == id else a for a in verdict.assessments),  # type: ignore[arg-type]
    )


def test_what_was_not_measured_is_a_gap() -> None:
    assert spark(np.array([np.nan, np.nan]), 10) == GAP * 2
    drawn = spark(np.array([0.0, np.nan, 10.0]), 10)
    assert drawn == f"▁{GAP}█"
    assert spark(np.array([5.0, 5.0]), 10) == "▄▄"
    assert spark(np.array([0.0, 0.0]), 10) == "▁▁"
    assert len(spark(np.arange(500.0), 40)) == 40
    assert spark(np.array([]), 10) == ""


def test_a_look_shows_symptom_signals_and_ranking(look: Look) -> None:
    history = History()
    history.seen(look)
    text = shown(history)
    assert "First tokens went from" in text
    assert "KV cache" in text
    assert text.index("1  context_growth") < text.index("2  prefix_cache_off")
    assert "GPU use" not in text, "no GPU was measured"


def test_a_signal_that_ends_has_no_value_now(look: Look) -> None:
    name = "running_requests"
    (series,) = look.case.of(name)
    values = series.values.copy()
    values[-5:] = np.nan
    gone = Series(name, series.labels, series.times, values, series.producer)
    history = History()
    history.seen(replace(look, case=replace(look.case, series={**look.case.series, name: (gone,)})))
    line = next(row for row in shown(history).splitlines() if row.startswith("running"))
    assert re.split(r"\s{2,}", line.strip())[2] == GAP


def test_a_vanished_source_leaves_the_last_look_and_says_so(look: Look) -> None:
    history = History()
    history.failed(NOW, "http://store refused the connection")
    assert "refused the connection" in shown(history)
    assert "context_growth" not in shown(history)
    history.seen(look)
    history.failed(NOW + 60, "http://store refused the connection")
    history.failed(NOW + 75, "http://store refused the connection")
    text = shown(history)
    assert "source does not answer since" in text
    assert "what follows is old" in text
    assert "context_growth" in text
    assert sum("gone" in change.text for change in history.changes) == 2
    history.seen(look)
    assert "what follows is old" not in shown(history)
    assert "answers again" in history.changes[-1].text


def test_the_ranking_tells_how_it_moves(look: Look) -> None:
    before = changed(look.verdict, "prefix_cache_off", state=State.UNDECIDED, confidence=0.3, rank=1)
    before = changed(before, "context_growth", rank=2)
    history = History()
    history.seen(replace(look, verdict=replace(before, leading="prefix_cache_off")))
    history.seen(look)
    places = {one.id: one for one in history.ranking(6)}
    assert places["context_growth"].moved == 1
    assert places["prefix_cache_off"].moved == -1
    assert places["prefix_cache_off"].rose > 0.5
    texts = [change.text for change in history.changes]
    assert "leading cause: prefix_cache_off → context_growth" in texts
    assert any(text.startswith("prefix_cache_off: undecided → supported") for text in texts)
    assert "▲1" in shown(history)


def test_keys_pause_open_and_change_the_window(look: Look) -> None:
    watching = Watching([str(RECORDING)], Question(now=NOW), window_seconds=3600.0)
    showing, shared = Showing("x", 3600.0, 15.0), _Shared()
    shared.history.seen(look)
    _react("p", watching, showing, shared)
    assert showing.paused
    assert "paused" in shown(shared.history, showing)
    _react("+", watching, showing, shared)
    assert watching.window_seconds == showing.window_seconds == 7200.0
    _react("-", watching, showing, shared)
    _react("-", watching, showing, shared)
    assert watching.window_seconds == 1800.0
    assert [change.text for change in shared.history.changes] == ["window: last 30 min"]
    _react("2", watching, showing, shared)
    assert showing.opened == "prefix_cache_off"
    text = shown(shared.history, showing)
    assert "prefix caching is off" in text
    assert "do (safe)" in text or "do (with care)" in text
    _react("0", watching, showing, shared)
    assert showing.opened == ""
    _react("q", watching, showing, shared)
    assert shared.ended.is_set()


def test_a_bundle_is_saved_from_what_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Watching([str(RECORDING)], Question(now=NOW), window_seconds=3600.0) as watching:
        watching.look(2.0)
        showing, shared = Showing("x", 3600.0, 15.0), _Shared()
        _react("s", watching, showing, shared)
        assert shared.saving is not None
        shared.saving.join(20)
    (made,) = tmp_path.glob("diag-*.zip")
    assert showing.said == f"wrote {made.name}"


def test_a_source_that_is_not_there_yet_is_tried_again() -> None:
    with Watching(["http://127.0.0.1:9/metrics"], Question(now=NOW), window_seconds=600.0) as watching:
        for _ in range(2):
            with pytest.raises(DiagError):
                watching.look(2.0)


def test_hostile_texts_reach_no_terminal(look: Look) -> None:
    evil = "\x1b]0;title\x07\x1b[2Jgone \u202e"
    history = History()
    history.seen(replace(look, verdict=replace(look.verdict, summary=evil)))
    history.failed(NOW, evil)
    text = shown(history, Showing(evil, 3600.0, 15.0))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_the_width(look: Look, width: int) -> None:
    history = History()
    history.seen(look)
    assert max(len(line) for line in shown(history, width=width).splitlines()) <= width


@pytest.mark.parametrize("height", [16, 20, 60])
def test_causes_and_keys_stay_in_a_low_terminal(look: Look, height: int) -> None:
    history = History()
    history.seen(look)
    to = io.StringIO()
    console = Console(file=to, width=80, height=height, no_color=True, highlight=False)
    console.print(_fitted(history, Showing("http://store", 3600.0, 15.0), console))
    text = to.getvalue()
    assert len(text.splitlines()) <= height
    assert "1  context_growth" in text
    assert "q quit" in text
    assert ("prompt length" in text) == (height == 60)


def test_a_narrow_terminal_drops_columns_before_it_cuts_names(look: Look) -> None:
    history = History()
    history.seen(look)
    text = shown(history, width=50)
    assert re.search(r"^1  context_growth +supported +\d+ %", text, re.MULTILINE)
    assert "first token p95" in text
    assert "course" not in text
    assert "what it is" not in text


def test_what_nobody_would_act_on_is_counted_and_not_listed(look: Look) -> None:
    faint = [replace(a, state=State.UNDECIDED, confidence=0.004) for a in look.verdict.assessments]
    calm = replace(look.verdict, leading=None, assessments=tuple(faint))
    history = History()
    history.seen(replace(look, verdict=calm))
    text = shown(history)
    assert "no cause stands out" in text
    assert f"{len(calm.assessments)} more undecided, each below 1 %" in text
    assert "context_growth" not in text
    history.seen(look)
    assert {one.id: one.new for one in history.ranking(6)}["context_growth"]
    assert re.search(r"1  context_growth .* new ", shown(history))


def test_a_look_under_way_when_it_is_paused_changes_nothing(look: Look) -> None:
    showing, shared = Showing("x", 3600.0, 15.0), _Shared()

    class Slow(Watching):
        def look(self, poll_seconds: float) -> Look:
            _react("p", self, showing, shared)
            return replace(look, time=look.time + poll_seconds)

    shared.history.seen(look)
    _look(Slow([], Question(now=NOW), window_seconds=3600.0), showing, shared, lambda: NOW)
    assert shared.history.last is look


def test_keys_that_send_sequences_press_no_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "r") as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        with Keys() as keys:
            os.write(ours, b"\x1b[1~2\x1b[15~\x1b[Ap\x1bOP")
            assert keys.pressed(5.0) == "2p"
    os.close(ours)


def test_a_source_that_hangs_is_told_before_it_fails(look: Look) -> None:
    showing, shared = Showing("x", 3600.0, 15.0), _Shared()
    began: list[float | None] = []

    class Hanging(Watching):
        def look(self, poll_seconds: float) -> Look:
            assert poll_seconds == 15.0
            began.append(shared.asked_at)
            return look

    _look(Hanging([], Question(now=NOW), window_seconds=3600.0), showing, shared, lambda: NOW)
    assert began == [NOW]
    assert shared.asked_at is None
    shared.history.waited_seconds = 19.0
    assert "no answer" not in shown(shared.history, showing)
    shared.history.waited_seconds = 21.0
    assert "no answer for 21 s" in shown(shared.history, showing)


def test_keys_work_while_a_bundle_is_saved() -> None:
    asked: list[Path] = []
    released = threading.Event()

    class Hanging(Watching):
        def save(self, path: Path) -> Path:
            asked.append(path)
            assert released.wait(20)
            return path

    watching = Hanging([], Question(now=NOW), window_seconds=3600.0)
    showing, shared = Showing("x", 3600.0, 15.0), _Shared()
    _react("s", watching, showing, shared)
    assert showing.said == "saving a bundle …"
    saving = shared.saving
    assert saving is not None
    _react("s", watching, showing, shared)
    assert shared.saving is saving
    _react("q", watching, showing, shared)
    assert shared.ended.is_set()
    released.set()
    saving.join(20)
    assert len(asked) == 1
    assert showing.said == f"wrote {asked[0]}"
