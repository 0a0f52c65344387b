"""Commands on real recordings, end to end: what is typed, what comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from diag import api
from diag.quantities import timestamp
from diag.renderers import load, render

Diag = Callable[..., Any]


@pytest.fixture(scope="module")
def schema(checkout: Path) -> Any:
    return json.loads((checkout / "diag" / "renderers" / "verdict.schema.json").read_text())


def test_the_demo_names_its_cause_and_says_what_it_looks_at(diag: Diag) -> None:
    ran = diag("demo")
    assert ran.code == 0
    assert ran.err.startswith("Recorded incident: six chats")
    assert "LEADING CAUSE" in ran.out
    assert "context_growth" in ran.out.split("LEADING CAUSE")[1][:80]
    assert "prefix_cache_off" in ran.out
    assert "preempt" in ran.out
    assert "RULED OUT" in ran.out
    unchecked = ran.out.split("COULD NOT BE CHECKED")[1]
    assert "thermal_throttle" in unchecked
    assert "dcgm-exporter" in unchecked
    assert max(map(len, ran.out.splitlines())) <= 100


def test_a_simulated_demo_says_so_on_screen_and_in_the_answer(diag: Diag) -> None:
    ran = diag("demo", "context_growth_gpu", "--json")
    assert "simulated" in ran.err.lower()
    data = json.loads(ran.out)
    assert any("simulated" in note.lower() for note in data["notes"])
    states = {one["id"]: one["state"] for one in data["assessments"]}
    assert data["leading"] == "context_growth"
    assert {states[id] for id in ("thermal_throttle", "power_cap", "noisy_neighbour")} == {"ruled_out"}


def test_the_list_of_demos_names_every_one(diag: Diag) -> None:
    ran = diag("demo", "--list")
    assert ran.err == ""
    for one in api.demos():
        assert f"{one.name} " in ran.out
    listed = json.loads(diag("demo", "--list", "--json").out)
    assert {one["name"]: one["simulated"] for one in listed}["context_growth_gpu"] is True


def test_a_bundle_as_json_keeps_the_schema_and_is_alone_on_stdout(
    diag: Diag, incidents: Path, schema: Any
) -> None:
    ran = diag("triage", str(incidents / "load_burst"), "--json")
    assert ran.err == ""
    data = json.loads(ran.out)
    jsonschema.Draft202012Validator(schema).validate(data)
    assert data["leading"] == "load_burst"
    assert data["source"] == [{"kind": "bundle", "ref": str(incidents / "load_burst")}]
    assert {one["id"] for one in data["assessments"]} == {card.id for card in api.cards()}
    assert [one["rank"] for one in data["assessments"]] == list(range(1, len(data["assessments"]) + 1))


def test_the_answer_goes_to_a_file_in_the_shape_of_its_ending(
    diag: Diag, incidents: Path, tmp_path: Path
) -> None:
    bundle = str(incidents / "healthy_a")
    for name in ("answer.json", "answer.md", "answer.txt"):
        ran = diag("triage", bundle, "-o", str(tmp_path / name))
        assert (ran.code, ran.out) == (0, "")
        assert f"wrote {tmp_path / name}" in ran.err
    saved = load((tmp_path / "answer.json").read_text())
    assert saved.leading is None
    assert (tmp_path / "answer.md").read_text() == render(saved, "markdown")
    assert (tmp_path / "answer.txt").read_text().startswith("No incident in this window")


def test_fail_on_tells_a_script_what_stands(diag: Diag, incidents: Path) -> None:
    burst = str(incidents / "load_burst")
    assert diag("triage", burst, "--fail-on", "supported").code == 10
    assert diag("triage", burst, "--fail-on", "undecided").code == 10
    assert diag("triage", burst).code == 0


def test_check_says_what_is_there_what_is_missing_and_what_can_be_judged(diag: Diag, incidents: Path) -> None:
    ran = diag("check", str(incidents / "context_growth_reference"))
    assert ran.code == 0
    assert "vllm (" in ran.out.split("SEEN")[1]
    assert "dcgm-exporter" in ran.out
    data = json.loads(diag("check", str(incidents / "context_growth_reference"), "--json").out)
    possible = {one["id"]: one["possible"] for one in data["assessable"]}
    assert possible["context_growth"]
    assert not possible["thermal_throttle"]
    assert data["requests"] > 100
    seen = {one["signal"] for one in data["present"]}
    missing = {name for one in data["lacking"] for name in one["signals"]}
    assert "waiting_requests" in seen
    assert "gpu_sm_clock_hertz" in missing
    assert not seen & missing


def test_explain_lists_all_and_tells_one(diag: Diag) -> None:
    ids = [card.id for card in api.cards()]
    listing = diag("explain").out
    assert [line.split()[0] for line in listing.splitlines()] == ids
    for id in ids:
        ran = diag("explain", id)
        assert ran.code == 0
        assert "SIGNS" in ran.out
        assert "WHAT RULES IT OUT" in ran.out
        assert max(map(len, ran.out.splitlines())) <= 100


def test_a_recorded_bundle_triages_like_its_source(diag: Diag, incidents: Path, tmp_path: Path) -> None:
    source, copy = str(incidents / "load_burst"), str(tmp_path / "copy.tar.gz")
    ran = diag("record", source, "-o", copy)
    assert (ran.code, ran.out) == (0, "")
    first = json.loads(diag("triage", source, "--json").out)
    second = json.loads(diag("triage", copy, "--json").out)
    for data in (first, second):
        for key in ("source", "generated_at"):
            del data[key]
    assert second == first


@pytest.mark.parametrize(
    ("match", "says"),
    [
        ("namespce=prod", "no series carries the label 'namespce'; labels here: "),
        ("job=nothing", "no series has that value; values here: "),
    ],
)
def test_a_label_that_nothing_carries_is_named(diag: Diag, incidents: Path, match: str, says: str) -> None:
    ran = diag("triage", str(incidents / "healthy_a"), "--match", match)
    assert ran.code == 2
    assert says in ran.err
    assert ran.out == ""


def test_a_window_without_data_names_one_that_has_some(diag: Diag, incidents: Path) -> None:
    ran = diag(
        "triage",
        str(incidents / "healthy_a"),
        "--from",
        "2020-01-01T00:00:00Z",
        "--to",
        "2020-01-01T01:00:00Z",
    )
    assert ran.code == 1
    assert "2026-" in ran.err
    assert ran.err.count("\n") == 1


def test_sources_and_looks_come_from_diag_toml(diag: Diag, incidents: Path, tmp_path: Path) -> None:
    (tmp_path / "diag.toml").write_text(f'sources = ["{incidents / "healthy_a"}"]\nformat = "markdown"\n')
    assert diag("triage").out.startswith("# No incident in this window")


def test_a_marked_baseline_is_used(diag: Diag, incidents: Path) -> None:
    bundle = incidents / "load_burst"
    start = json.loads((bundle / "bundle.json").read_text())["window"]["from"]
    ran = diag(
        "triage", str(bundle), "--json", "--baseline-from", str(start + 10), "--baseline-to", str(start + 50)
    )  # fmt: skip
    data = json.loads(ran.out)
    assert data["windows"]["baseline"] == [timestamp(start + 10), timestamp(start + 50)]
    assert data["leading"] == "load_burst"
