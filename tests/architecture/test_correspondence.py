"""One word for an idea, in both directions: nothing without its page, no page without its thing."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from diag.assets.symptoms import SYMPTOMS
from diag.engines import ENGINES
from diag.hypotheses import CARDS, HYPOTHESES
from diag.signals.vocabulary import SIGNALS
from diag.simulate.scenarios import SCENARIOS

RUNBOOKS = sorted((Path(__file__).resolve().parents[2] / "runbooks").glob("*.md"))
IDS = set(CARDS)
ROOMS = Path(__file__).resolve().parents[2] / "diag" / "hypotheses"


def test_each_hypothesis_and_symptom_has_a_runbook_and_each_runbook_one_of_them() -> None:
    assert not IDS & set(SYMPTOMS)
    assert {path.stem for path in RUNBOOKS} == IDS | set(SYMPTOMS)


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


def test_engines_define_only_signals_of_the_vocabulary() -> None:
    for engine in ENGINES:
        assert set(engine.signals) <= set(SIGNALS), engine.name


def test_each_signal_has_a_producer() -> None:
    produced = {name for engine in ENGINES for name in engine.signals}
    from_records = {name for name, entry in SIGNALS.items() if entry.scope == "requests"}
    assert set(SIGNALS) - produced - from_records == set()
