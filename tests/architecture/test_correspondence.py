"""One word for an idea, in both directions: nothing without its page, no page without its thing."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import promql_parser
import pytest

from diag.engines import ENGINES
from diag.hypotheses import CARDS, HYPOTHESES
from diag.signals.vocabulary import SIGNALS
from diag.simulate.scenarios import SCENARIOS

HEADINGS = ["Meaning", "Impact", "How diag decides", "Diagnosis", "Mitigation", "Look-alikes", "Sources"]

RUNBOOKS = sorted((Path(__file__).resolve().parents[2] / "runbooks").glob("*.md"))
IDS = set(CARDS)
ROOMS = Path(__file__).resolve().parents[2] / "diag" / "hypotheses"


def test_each_hypothesis_has_a_runbook_and_each_runbook_a_hypothesis() -> None:
    assert {path.stem for path in RUNBOOKS} == IDS


def test_each_room_is_in_the_table_of_contents_and_called_like_its_id() -> None:
    modules = {path.stem for path in ROOMS.glob("*.py")} - {"__init__", "registry"}
    assert modules == IDS
    assert {hypothesis.card.id for hypothesis in HYPOTHESES} == IDS - {"unknown"}
    for identity in IDS:
        assert import_module(f"diag.hypotheses.{identity}").CARD.id == identity


def test_each_hypothesis_has_its_scenario_and_each_scenario_a_known_cause() -> None:
    made_for = {scenario.hypothesis for scenario in SCENARIOS.values() if scenario.kind == "cause"}
    assert made_for == IDS - {"unknown"}
    # What is not one cause of ours has none: healthy, unknown, or two at once.
    assert {scenario.hypothesis for scenario in SCENARIOS.values() if scenario.kind != "cause"} == {""}
    for identity in IDS - {"unknown"}:
        assert SCENARIOS[identity].hypothesis == identity


def test_a_room_needs_and_chains_only_signals_of_the_vocabulary() -> None:
    for hypothesis in HYPOTHESES:
        asked = {name for group in hypothesis.needs for name in group if ":" not in name}
        assert asked | set(hypothesis.card.chain) <= set(SIGNALS), hypothesis.card.id


def test_cards_name_known_hypotheses_and_mitigate_safely_first() -> None:
    for card in CARDS.values():
        assert set(card.look_alikes) | set(card.leads_to) <= IDS, card.id
        safe = [mitigation.safe for mitigation in card.mitigations]
        assert safe == sorted(safe, reverse=True), card.id
        assert safe, card.id


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_runbook_tells_the_look_alikes_of_its_card(path: Path) -> None:
    text = path.read_text("utf-8")
    assert [name for name in CARDS[path.stem].look_alikes if f"`{name}`" not in text] == []


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_runbook_keeps_the_headings(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    assert lines[0].startswith(f"# {path.stem}: ")
    assert [line[3:] for line in lines if line.startswith("## ")] == HEADINGS
    assert len(lines) <= 80


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_runbook_holds_commands_and_valid_promql(path: Path) -> None:
    text = path.read_text("utf-8")
    expressions: list[str] = []
    for block in re.findall(r"```promql\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            bare = line.split("#")[0].rstrip()
            if bare.startswith(" "):
                expressions[-1] += bare
            elif bare:
                expressions.append(bare)
    for expression in expressions:
        promql_parser.parse(expression)
    assert expressions or "```sh" in text


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_look_alike_is_a_known_hypothesis(path: Path) -> None:
    section = path.read_text("utf-8").partition("## Look-alikes")[2].partition("\n## ")[0]
    named = set(re.findall(r"^- `([a-z_]+)`", section, re.MULTILINE))
    assert named <= IDS


def test_engines_define_only_signals_of_the_vocabulary() -> None:
    for engine in ENGINES:
        assert set(engine.signals) <= set(SIGNALS), engine.name


def test_each_signal_has_a_producer() -> None:
    produced = {name for engine in ENGINES for name in engine.signals}
    from_records = {name for name, entry in SIGNALS.items() if entry.scope == "requests"}
    assert set(SIGNALS) - produced - from_records == set()
