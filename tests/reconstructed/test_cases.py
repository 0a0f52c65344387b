"""Public incidents rebuilt: what is said of them holds, and triage accuses none whom their threads clear."""

from __future__ import annotations

from pathlib import Path

import pytest

from diag.api import cards, gather, open_bundle
from diag.model import State
from diag.simulate.parts import save
from diag.simulate.reconstructed import CASES
from diag.simulate.reconstructed.table import table
from diag.sources.protocol import Question
from diag.triage import triage

_IDS = {card.id for card in cards()}
_FAMILIES = set("ABCDEFGHIJKL")
_SURE = {"maintainer-confirmed", "reporter-confirmed", "likely", "unresolved"}
_BYTES_MAX = 130_000
_CONFIDENT = 0.7


def test_at_least_forty_cases_of_every_family() -> None:
    assert len(CASES) >= 40
    assert {case.family[0] for case in CASES.values()} == _FAMILIES
    assert {case.sure for case in CASES.values()} == _SURE


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_labels_are_of_the_catalogue_and_agree_with_themselves(case) -> None:
    label = case.label
    named = {one for one in (label.leading, *label.accept) if one is not None} | {
        *label.must_not,
        *label.keep_open,
    }
    assert named <= _IDS, named - _IDS
    assert not {label.leading, *label.accept} & set(label.must_not)
    if label.leading in (None, "unknown"):
        assert label.onset_seconds is None
    if case.sure == "unresolved":
        assert label.undecided
        assert "unknown" in (label.leading, *label.accept)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_notes_tell_posted_from_filled_in(case) -> None:
    written = case.bundle().meta
    assert written["notes"].startswith(f"RECONSTRUCTED from {case.source}. POSTED: ")
    assert f"FILLED IN: {case.filled}" in written["notes"]
    assert written["label"]["kind"] == "reconstructed"
    assert min(len(case.posted), len(case.filled)) > 15


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_bundles_are_small_and_the_same_every_time(case, tmp_path: Path) -> None:
    first, second = (_bytes(save(case.bundle(), tmp_path / name)) for name in ("a", "b"))
    assert first == second
    assert sum(map(len, first.values())) <= _BYTES_MAX


def _bytes(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_triage_reads_it_and_supports_no_suspect_that_the_thread_clears(case, tmp_path: Path) -> None:
    bundle = case.bundle()
    folder = save(bundle.with_meta(label=None, notes=""), tmp_path / "case")
    with open_bundle(folder) as source:  # type: ignore[attr-defined]
        gathered = gather([source], Question(now=bundle.window.end))
    assert not [note for note in gathered.notes if "bad" in note or "unreadable" in note], gathered.notes
    verdict = triage(gathered, now=bundle.window.end, version="test")
    wrong = [
        (one.id, round(one.confidence, 2))
        for one in verdict.assessments
        if one.id in case.label.must_not and one.state is State.SUPPORTED and one.confidence >= _CONFIDENT
    ]
    assert not wrong, f"{case.id}: {wrong}, though the thread clears them"


def test_the_table_is_up_to_date() -> None:
    assert (Path(__file__).parent / "README.md").read_text(encoding="utf-8") == table(CASES.values())
