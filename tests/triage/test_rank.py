"""The arithmetic of judgement: more support never hurts, and ruling out takes a decisive item."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diag.detectors.cues import Explained
from diag.detectors.view import View
from diag.hypotheses import CARDS, HYPOTHESES
from diag.hypotheses.registry import Hypothesis, Output
from diag.model import Case, Evidence, Stance, State
from diag.triage.calibration import CALIBRATION
from diag.triage.rank import Judged, judge, leader
from diag.triage.run import look
from diag.triage.weights import WEIGHTS

Cue = tuple[str, float, bool]
"""Cue, degree, decisive where it speaks against."""

IDS = sorted(WEIGHTS)


@pytest.fixture(scope="module")
def view(everything: Case) -> View:
    return look(everything)


@pytest.fixture(scope="module")
def healthy(recorded: Callable[[str], Case]) -> View:
    return look(recorded("healthy_a"))


def evidence(cue: Cue) -> Evidence:
    name, degree, decisive = cue
    stance = Stance.FOR if degree >= 0.5 else Stance.AGAINST
    return Evidence(
        name, "ttft_seconds_mean", stance, degree, "", decisive=decisive and stance is Stance.AGAINST
    )


def judged(rooms: Mapping[str, Sequence[Output]], view: View) -> dict[str, Judged]:
    """The real arithmetic over rooms that say what the test wants; the rest of the house is silent."""

    def room(hypothesis: Hypothesis) -> Hypothesis:
        said = rooms.get(hypothesis.card.id)
        if said is None:
            return replace(hypothesis, needs=(("no such signal",),))
        return replace(hypothesis, needs=(), examine=lambda _: iter(said))

    return {j.id: j for j in judge(view, tuple(room(h) for h in HYPOTHESES))}


@st.composite
def sayings(draw: st.DrawFn) -> tuple[str, list[Cue]]:
    """A hypothesis and some of its cues, each at most once."""
    id = draw(st.sampled_from(IDS))
    names = draw(st.lists(st.sampled_from(sorted(WEIGHTS[id])), unique=True, max_size=6))
    return id, [(name, draw(st.floats(0, 1)), draw(st.booleans())) for name in names]


@given(sayings(), st.data())
def test_one_more_fulfilled_prediction_never_lowers_a_score(
    view: View, saying: tuple[str, list[Cue]], data: st.DataObject
) -> None:
    id, cues = saying
    more = data.draw(st.sampled_from(sorted(WEIGHTS[id])))
    without = [evidence(cue) for cue in cues if cue[0] != more] or [
        evidence((sorted(WEIGHTS[id])[0], 0.5, False))
    ]
    if without[0].cue == more:
        return
    before = judged({id: without}, view)[id]
    after = judged({id: [*without, evidence((more, 1.0, False))]}, view)[id]
    assert after.own >= before.own - 1e-9
    assert after.confidence >= before.confidence - 1e-9
    assert not (before.state is State.SUPPORTED and after.state is not State.SUPPORTED)


@given(sayings(), st.data())
def test_a_prediction_that_came_true_further_never_lowers_a_score(
    view: View, saying: tuple[str, list[Cue]], data: st.DataObject
) -> None:
    id, cues = saying
    if not cues:
        return
    at = data.draw(st.integers(0, len(cues) - 1))
    name, degree, decisive = cues[at]
    further = (name, data.draw(st.floats(degree, 1)), decisive)
    before = judged({id: [evidence(c) for c in cues]}, view)[id]
    after = judged({id: [evidence(c) for c in [*cues[:at], further, *cues[at + 1 :]]]}, view)[id]
    assert after.own >= before.own - 1e-9
    assert after.confidence >= before.confidence - 1e-9


@given(sayings(), st.permutations(range(6)))
def test_the_order_in_which_a_room_speaks_does_not_matter(
    view: View, saying: tuple[str, list[Cue]], order: list[int]
) -> None:
    id, cues = saying
    if not cues:
        return
    shuffled = [cues[i] for i in order if i < len(cues)]
    one, other = (judged({id: [evidence(c) for c in said]}, view)[id] for said in (cues, shuffled))
    assert one.own == pytest.approx(other.own)
    assert one.state is other.state
    assert one.confidence == pytest.approx(other.confidence)


@given(sayings())
def test_only_decisive_contrary_evidence_rules_out(view: View, saying: tuple[str, list[Cue]]) -> None:
    id, cues = saying
    if not cues:
        return
    found = judged({id: [evidence(c) for c in cues]}, view)[id]
    if found.state is State.RULED_OUT:
        assert any(e.decisive for e in found.evidence)
        assert found.own < -3
    harmless = judged({id: [replace(evidence(c), decisive=False) for c in cues]}, view)[id]
    assert harmless.state is not State.RULED_OUT


@given(sayings())
def test_without_a_driver_nothing_is_supported(view: View, saying: tuple[str, list[Cue]]) -> None:
    id, cues = saying
    said = [c for c in cues if not WEIGHTS[id][c[0]].driver]
    if not said:
        return
    assert judged({id: [evidence(c) for c in said]}, view)[id].state is not State.SUPPORTED


@pytest.mark.parametrize("id", [id for id in IDS if id != "telemetry_fault"])
def test_nothing_is_supported_and_nobody_leads_without_a_symptom(id: str, healthy: View) -> None:
    everything_true = [evidence((name, 1.0, False)) for name in WEIGHTS[id]]
    found = judged({id: everything_true}, healthy)
    assert found[id].state is not State.SUPPORTED
    assert found[id].confidence == 0
    assert leader(list(found.values()), healthy) is None


@pytest.mark.parametrize("id", IDS)
def test_with_all_of_its_predictions_true_a_cause_is_supported(id: str, view: View) -> None:
    said = [evidence((name, 1.0, False)) for name in WEIGHTS[id]]
    found = judged({id: said}, view)
    assert found[id].state is State.SUPPORTED
    lead = leader(list(found.values()), view)
    # What may last for ever begins an incident only when it was switched on in the window.
    trigger = next(h for h in HYPOTHESES if h.card.id == id).trigger or "switched" in WEIGHTS[id]
    assert (lead.id if lead else None) == (id if trigger else None)


@pytest.mark.parametrize("id", [h.card.id for h in HYPOTHESES if not h.trigger])
def test_what_may_last_for_ever_leads_only_when_it_was_switched_on(id: str, view: View) -> None:
    lasting = [evidence((name, 1.0, False)) for name in WEIGHTS[id] if name != "switched"]
    found = judged({id: lasting}, view)
    assert found[id].state is State.SUPPORTED
    assert leader(list(found.values()), view) is None


@pytest.mark.parametrize("id", IDS)
def test_with_none_of_its_predictions_true_a_cause_is_ruled_out(id: str, view: View) -> None:
    found = judged({id: [evidence((name, 0.0, True)) for name in WEIGHTS[id]]}, view)
    assert found[id].state is State.RULED_OUT


def test_correlated_cues_vote_once(view: View) -> None:
    alone = judged({"prefix_cache_broken": [evidence(("hits", 1.0, False))]}, view)["prefix_cache_broken"]
    both = judged(
        {"prefix_cache_broken": [evidence(("hits", 1.0, False)), evidence(("hits_ratio", 1.0, False))]}, view
    )["prefix_cache_broken"]
    (weaker,) = (abs(e.weight) for e in both.evidence if e.cue == "hits_ratio")
    assert both.own == pytest.approx(alone.own + CALIBRATION.agreement * weaker)
    assert CALIBRATION.agreement < 0.5


@given(st.floats(0, 1), st.floats(0, 1))
def test_explaining_more_of_the_excess_never_lowers_a_score(view: View, share: float, more: float) -> None:
    low, high = sorted((share, more))
    said = [evidence(("rate", 1.0, False))]
    one, other = (judged({"load_burst": [*said, Explained(x)]}, view)["load_burst"] for x in (low, high))
    assert other.own >= one.own - 1e-9


def test_a_cause_that_moves_long_after_the_symptom_counts_less(view: View) -> None:
    def with_onset(time: float) -> Judged:
        said = [replace(evidence(("rate", 1.0, False)), onset=time)]
        return judged({"load_burst": said}, view)["load_burst"]

    early, late = with_onset(view.onset - 30), with_onset(view.spans.incident.end)
    assert late.own == pytest.approx(early.own + math.log(0.3))


def test_a_consequence_is_told_as_one(view: View) -> None:
    said = {
        id: [evidence((name, 1.0, False)) for name in WEIGHTS[id]]
        for id in ("context_growth", "kv_cache_exhaustion")
    }
    # The pool did not shrink and demand rose: no root, but real.
    said["kv_cache_exhaustion"] = [
        evidence((name, 0.0 if WEIGHTS["kv_cache_exhaustion"][name].root else 1.0, False))
        for name in WEIGHTS["kv_cache_exhaustion"]
    ]
    found = judged(said, view)
    assert found["context_growth"].explained_by is None
    assert found["kv_cache_exhaustion"].explained_by == "context_growth"
    assert found["kv_cache_exhaustion"].state is State.SUPPORTED
    lead = leader(list(found.values()), view)
    assert lead is not None
    assert lead.id == "context_growth"


def test_two_equal_rivals_are_not_both_believed(view: View) -> None:
    said = {
        id: [evidence((name, 1.0, False)) for name in WEIGHTS[id] if WEIGHTS[id][name].driver]
        for id in ("host_cpu_starvation", "load_burst")
    }
    found = judged(said, view)
    assert found["host_cpu_starvation"].confidence + found["load_burst"].confidence <= 1


def test_no_cause_leads_to_itself() -> None:
    def reached(id: str, seen: tuple[str, ...]) -> Iterator[str]:
        for child in CARDS[id].leads_to if id in CARDS else ():
            yield child
            if child not in seen:
                yield from reached(child, (*seen, child))

    for id in CARDS:
        assert id not in set(reached(id, (id,))), id


@pytest.mark.parametrize(("degree", "named"), [(1.0, True), (0.55, False)])
def test_two_of_ours_that_share_the_belief_are_not_called_unknown(
    view: View, degree: float, named: bool
) -> None:
    """Each alone is less likely than not, and yet it is one of them; of two faint ones it need not be."""
    ids = ("thermal_throttle", "power_cap", "slow_gpu")
    found = judged({id: [evidence((cue, degree, False)) for cue in WEIGHTS[id]] for id in ids}, view)
    most = max(found[id].confidence for id in ids)
    assert most < 0.5
    lead = leader(list(found.values()), view)
    assert (lead is not None) is named
    assert lead is None or (lead.id in ids and lead.confidence == most)
