"""Rows are judged once, kept, and never outlive the code that judged them."""

from __future__ import annotations

from pathlib import Path

import pytest

from diag.accuracy import running
from diag.accuracy.judging import Task
from diag.accuracy.page import page, tables_of
from diag.accuracy.running import judge_all
from diag.accuracy.sources import Work, works
from diag.accuracy.tables import as_markdown, as_text
from diag.errors import UsageError

NAMES = ("load_burst", "healthy_a", "network_latency")
TASK = Task(rivals=("random", "relative volume", "threshold checker"))


def _works(incidents: Path) -> list[Work]:
    return [work for name in NAMES for work in works([str(incidents / name)], None)]


def test_recordings_are_judged_right_and_kept(
    incidents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = judge_all(_works(incidents), kept=tmp_path, task=TASK)
    assert [row.name for row in rows] == list(NAMES)
    assert [row.leading for row in rows] == ["load_burst", None, "network_latency"]
    assert set(rows[0].rivals) == set(TASK.rivals)
    assert rows[0].held is not None
    assert rows[0].held.leading != "load_burst"
    assert rows[1].held is None
    assert all(row.seconds["triage"] > 0 for row in rows)

    def never(*_: object) -> None:
        raise AssertionError("judged twice")

    monkeypatch.setattr(running, "judged", never)
    assert judge_all(_works(incidents), kept=tmp_path, task=TASK) == rows


def test_other_code_judges_anew(incidents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = _works(incidents)[:1]
    judge_all(some, kept=tmp_path, task=TASK)
    (kept,) = tmp_path.iterdir()
    monkeypatch.setattr(running, "fingerprint", lambda: "another")
    before = kept.read_bytes()
    judge_all(some, kept=tmp_path, task=TASK)
    assert kept.read_bytes() != before
    assert len(kept.read_bytes().splitlines()) == 2


def test_a_row_cut_off_while_writing_is_judged_again(incidents: Path, tmp_path: Path) -> None:
    some = _works(incidents)[:2]
    rows = judge_all(some, kept=tmp_path, task=TASK)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:-40])
    again = judge_all(some, kept=tmp_path, task=TASK)
    assert [row.leading for row in again] == [row.leading for row in rows]


def test_two_processes_give_the_same_rows(incidents: Path, tmp_path: Path) -> None:
    some = _works(incidents)[:2]
    alone = judge_all(some, kept=None, task=TASK)
    spread = judge_all(some, kept=tmp_path, task=TASK, jobs=2)
    for a, b in zip(alone, spread, strict=True):
        assert (a.name, a.answers, a.rivals, a.onset, a.scope) == (
            b.name,
            b.answers,
            b.rivals,
            b.onset,
            b.scope,
        )


def test_a_folder_of_bundles_is_a_family(incidents: Path) -> None:
    found = works([str(incidents)], None)
    assert {work.family for work in found} == {"incidents"}
    assert {work.name for work in found} >= set(NAMES)
    assert len({work.digest for work in found}) == len(found)


@pytest.mark.parametrize("asked", ["nowhere", "test"])
def test_what_is_not_there_is_one_clear_line(asked: str) -> None:
    with pytest.raises(UsageError, match=r"nowhere|manifest"):
        works([asked], None)


def test_an_empty_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds none"):
        works([str(tmp_path)], None)


def test_the_page_shows_every_case_of_a_small_family_and_says_how_to_remake_it(incidents: Path) -> None:
    rows = {"recorded": judge_all(_works(incidents), kept=None, task=TASK)}
    text = page(
        rows,
        corpus="abc123",
        dropped={"recorded": 2},
        command="make corpus\ndiag bench recorded",
        judge="f00",
    )
    assert text.index("Read this first") < text.index("AC@1")
    for told in ("abc123", "$ diag bench recorded", "2 from recorded", "f00", "relative volume", *NAMES):
        assert told in text
    tables = tables_of(rows)
    assert all(len(row) == len(table.header) for table in tables for row in table.rows)
    assert "| load_burst | load_burst | load_burst |" in as_markdown(tables)
    assert max(len(line) for line in as_text(tables).splitlines()) < 400
