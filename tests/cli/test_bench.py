"""`diag bench` and `diag simulate`, as an operator types them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Diag = Callable[..., Any]


def test_bench_judges_bundles_and_writes_its_page(diag: Diag, incidents: Path, tmp_path: Path) -> None:
    cases = tmp_path / "mine"
    for name in ("load_burst", "healthy_a"):
        shutil.copytree(incidents / name, cases / name)
    ran = diag("bench", str(cases), "--no-baro", "--write", "docs/accuracy.md")
    assert ran.code == 0
    assert "mine: 2 cases (1 with one cause, 1 healthy)" in ran.out
    assert "relative volume" in ran.out
    assert "fse-baro" not in ran.out
    written = (tmp_path / "docs" / "accuracy.md").read_text("utf-8")
    assert "diag bench" in written
    assert "| load_burst | load_burst | load_burst |" in written
    assert list((tmp_path / "bench" / "out" / "results").iterdir())
    again = diag("bench", str(cases), "--no-baro", "--json")
    tables = json.loads(again.out)
    assert tables[0]["title"].startswith("mine: 2 cases")


def test_bench_says_what_is_wrong_in_one_line(diag: Diag, tmp_path: Path) -> None:
    for arguments, said in (
        (("bench", "nowhere", "--no-baro"), "nowhere does not exist"),
        (("bench", str(tmp_path), "--no-baro"), "holds none"),
        (("bench",), "CASES"),
    ):
        ran = diag(*arguments)
        assert ran.code == 2
        assert said in ran.err
        assert len(ran.err.splitlines()) == 1


def test_bench_without_fse_baro_says_so_before_it_begins(
    diag: Diag, incidents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import util

    found = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name == "baro" else found(name, *rest))
    ran = diag("bench", str(incidents / "load_burst"))
    assert ran.code == 1
    assert "--no-baro" in ran.err


def test_a_simulated_incident_can_be_triaged(diag: Diag, tmp_path: Path) -> None:
    made = diag("simulate", "thermal_throttle", "-o", "x.zip", "--seed", "7")
    assert made.code == 0
    assert "wrote x.zip (seed 7; " in made.err
    verdict = json.loads(diag("triage", "x.zip", "--json").out)
    assert verdict["schema"] == "diag.verdict/1"
    assert verdict["symptoms"]
    assert diag("simulate", "thermal_throttle", "-o", "folder", "--seed", "7").code == 0
    assert (tmp_path / "folder" / "bundle.json").is_file()
    again = diag("simulate", "thermal_throttle", "-o", "x.zip", "--seed", "7")
    assert again.code == 1
    assert "exists already" in again.err


def test_simulate_lists_its_scenarios(diag: Diag) -> None:
    ran = diag("simulate", "--list")
    assert ran.code == 0
    assert "context_growth" in ran.out
    rows = json.loads(diag("simulate", "--list", "--json").out)
    assert {"healthy", "unknown", "double", "cause"} == {row["kind"] for row in rows}
    assert len(rows) > 35


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulate",), "--list"),
        (("simulate", "context_growth"), "-o"),
        (("simulate", "contxt_growth", "-o", "x.zip"), "context_growth"),
        (("simulate", "context_growth", "-o", "x.zip", "--family", "tset"), "develop"),
        (("simulate", "context_growth", "-o", "x.zip", "--severity", "7"), "between 0 and 1"),
    ],
)
def test_simulate_says_what_is_wrong_in_one_line(arguments: tuple[str, ...], said: str, diag: Diag) -> None:
    ran = diag(*arguments)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
