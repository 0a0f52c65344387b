"""How people look: two minutes after it began, through a window wider than the history, with a log that was
rotated just before, or at a window that begins when all is wrong already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from diag.api import triage
from diag.model import State, Verdict, Window
from diag.simulate import load, save
from diag.sources.protocol import Question

from .test_recordings import LABELS, WRONG

_AFTER_SECONDS = 120.0
_WIDE_SECONDS = 6 * 3600.0
Look = Callable[..., Verdict]
# Blamed on another with confidence when the window begins in mid-incident. The list may only get shorter.
MISTAKEN = {"prefix_cache_scattered_long"}


@pytest.fixture
def look(incidents: Path, tmp_path: Path) -> Look:
    """``look(name, seconds, records_from)``: a recording up to two minutes after its onset, asked for
    ``seconds``; its request records begin ``records_from`` seconds after the onset (before it: negative)."""

    def seen(name: str, seconds: float, records_from: float | None = None) -> Verdict:
        bundle = load(incidents / name)
        onset = LABELS[name]["onset"] or bundle.window.start + bundle.window.seconds / 2
        end = min(onset + _AFTER_SECONDS, bundle.window.end)
        if records_from is not None:
            kept = tuple(one for one in bundle.requests if one["ts"] >= onset + records_from)
            spans = {path: data for path, data in bundle.files.items() if not path.startswith("traces/")}
            bundle = replace(bundle, requests=kept, files=spans)
        blind = save(bundle.with_meta(label=None, notes=""), tmp_path / name)
        return triage(blind, question=Question(now=end, window=Window(end - seconds, end)))

    return seen


@pytest.mark.parametrize("name", WRONG)
def test_a_window_wider_than_the_history_changes_nothing(name: str, look: Look) -> None:
    verdict = look(name, _WIDE_SECONDS)
    assert verdict.leading in (LABELS[name].get("accept") or [LABELS[name]["leading"]])
    assert verdict.assessments[0].state is State.SUPPORTED
    assert any("there is no data before" in note for note in verdict.notes)


@pytest.mark.parametrize(
    "name", ["healthy_a", "kv_cache_exhaustion", "network_latency", "prefix_cache_broken"]
)
def test_records_that_begin_late_are_no_burst(name: str, look: Look) -> None:
    """What was before the first record is unknown, not zero."""
    verdict = look(name, 600.0, records_from=-20.0)
    (burst,) = [one for one in verdict.assessments if one.id == "load_burst"]
    assert burst.state is not State.SUPPORTED
    rates = [e for e in burst.evidence if e.signal == "arrivals_per_second" and e.unit == "per second"]
    assert [e for e in rates if e.before is not None and e.before < 0.5 * (e.during or 0.0)] == []
    assert rates


def test_a_cache_that_broke_is_named_with_few_records_of_before(look: Look) -> None:
    verdict = look("prefix_cache_broken", 600.0, records_from=-40.0)
    assert verdict.leading == "prefix_cache_broken"
    assert verdict.assessments[0].state is State.SUPPORTED


@pytest.mark.parametrize("name", WRONG)
def test_a_window_that_begins_in_mid_incident_accuses_nobody_else(name: str, incidents: Path) -> None:
    onset = LABELS[name]["onset"]
    bundle = load(incidents / name)
    window = Window(onset + 20.0, bundle.window.end)
    verdict = triage(incidents / name, question=Question(now=window.end, window=window))
    lead = verdict.assessments[0]
    right = verdict.leading in (LABELS[name].get("accept") or [LABELS[name]["leading"]])
    sure = verdict.leading not in (None, "unknown") and lead.state is State.SUPPORTED
    assert (sure and not right) is (name in MISTAKEN)
