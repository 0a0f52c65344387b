"""Every recording, whole and mutilated in nine ways, against its own label.

Two claims. Always: no true cause is ruled out, and no wrong one is named with confidence. Where the
remaining signals allow it: the leading cause is still the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from diag.model import Assessment, State, Verdict
from diag.simulate import Bundle

RECORDINGS = sorted(
    path.name for path in (Path(__file__).parents[1] / "incidents").iterdir() if path.is_dir()
)
MUTILATIONS = [
    "whole", "no_requests", "no_node", "half_lost", "counter_reset", "old_names", "underscores",
    "duplicate_target", "steps_of_15s",
]  # fmt: skip
SURE = 0.7

# These mutilations are faults of telemetry themselves; saying so beside the cause is right.
FAULTY_TELEMETRY = frozenset({"half_lost", "counter_reset", "duplicate_target"})

# Where the mutilation takes the only signals that carry the cause. Nothing else may stand here.
BLIND = {
    ("host_cpu_starvation_idle", "half_lost"): "with half the scrapes its CPU does not leave its wander",
    ("network_latency", "no_requests"): "only the client's own times show what a relay adds",
    ("host_cpu_starvation_idle", "no_node"): "no engine metric tells a starved CPU from a slow engine",
    ("telemetry_fault", "no_requests"): "a frozen page beside living traffic needs the traffic",
}

Judge = Callable[[Bundle], Verdict]


@pytest.fixture(scope="module")
def answer(
    recording: Callable[[str], Bundle],
    mutilations: Mapping[str, Callable[[Bundle], Bundle]],
    judged: Judge,
) -> Callable[[str, str], tuple[Bundle, Verdict]]:
    """The mutilated recording and its verdict, judged once for both claims."""
    known: dict[tuple[str, str], tuple[Bundle, Verdict]] = {}

    def get(name: str, mutilation: str) -> tuple[Bundle, Verdict]:
        if (name, mutilation) not in known:
            whole = recording(name)
            bundle = whole if mutilation == "whole" else mutilations[mutilation](whole)
            known[name, mutilation] = bundle, judged(bundle)
        return known[name, mutilation]

    return get


def accepted(bundle: Bundle) -> list[str | None]:
    return list(bundle.label.get("accept") or [bundle.label["leading"]])


def accused(verdict: Verdict) -> Iterator[Assessment]:
    """What the verdict blames by itself, with confidence: not as a consequence of something else.

    ``unknown`` blames nothing."""
    for one in verdict.assessments:
        if (
            one.id != "unknown"
            and one.state == State.SUPPORTED
            and one.confidence >= SURE
            and one.explained_by is None
        ):
            yield one


@pytest.mark.parametrize("mutilation", MUTILATIONS)
@pytest.mark.parametrize("name", RECORDINGS)
def test_no_true_cause_is_ruled_out_and_no_wrong_one_named_with_confidence(
    name: str, mutilation: str, answer: Callable[[str, str], tuple[Bundle, Verdict]]
) -> None:
    bundle, verdict = answer(name, mutilation)
    states = {one.id: one.state for one in verdict.assessments}
    causes = set(bundle.label["causes"])
    assert {cause for cause in causes if states.get(cause) == State.RULED_OUT} == set()
    allowed = causes | ({"telemetry_fault"} if mutilation in FAULTY_TELEMETRY else set())
    wrong = {one.id: round(one.confidence, 2) for one in accused(verdict) if one.id not in allowed}
    assert wrong == {}


@pytest.mark.parametrize("mutilation", MUTILATIONS)
@pytest.mark.parametrize("name", RECORDINGS)
def test_the_leading_cause_is_right_where_the_signals_allow_it(
    name: str, mutilation: str, answer: Callable[[str, str], tuple[Bundle, Verdict]]
) -> None:
    bundle, verdict = answer(name, mutilation)
    if (name, mutilation) in BLIND:
        assert verdict.leading in {*accepted(bundle), None, "unknown"}
    else:
        assert verdict.leading in accepted(bundle)
