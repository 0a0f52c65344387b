"""Recordings that the judgement's author had not seen when it was written; see heldout/README.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from diag.model import State

from .conftest import Judged

HELDOUT = Path(__file__).parents[1] / "heldout"
LABELS = {
    path.parent.name: json.loads(path.read_text("utf-8"))["label"]
    for path in sorted(HELDOUT.glob("*/bundle.json"))
}
ALL = sorted(LABELS)
WRONG = [name for name in ALL if LABELS[name]["causes"]]
ONSET_SECONDS = 60.0

Get = Callable[[str], Judged]


@pytest.mark.parametrize("name", ALL)
def test_the_leading_cause_is_an_accepted_one(name: str, judged: Get) -> None:
    found = judged(name)
    assert found.whole.leading in found.accepted


@pytest.mark.parametrize("name", ALL)
def test_no_true_cause_is_ruled_out_and_no_other_blamed(name: str, judged: Get) -> None:
    found = judged(name)
    causes = set(found.label["causes"])
    out = {one.id for one in found.whole.assessments if one.state is State.RULED_OUT}
    roots = {
        one.id
        for one in found.whole.assessments
        if one.state is State.SUPPORTED and one.explained_by is None and one.id != "unknown"
    }
    assert not causes & out
    assert roots <= causes


@pytest.mark.parametrize("name", WRONG)
def test_the_onset_is_within_a_minute(name: str, judged: Get) -> None:
    found = judged(name)
    assert found.whole.incident is not None
    assert abs(found.whole.incident.start - found.label["onset"]) <= ONSET_SECONDS


@pytest.mark.parametrize("name", ALL)
def test_nobody_is_accused_before_the_onset(name: str, judged: Get) -> None:
    before = judged(name).before
    assert before.leading in (None, "unknown")
    assert not [one.id for one in before.assessments if one.state is State.SUPPORTED and one.id != "unknown"]
