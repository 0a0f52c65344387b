"""Take away what a hypothesis cannot do without, and it says so, with how to get it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from diag.detectors.view import View
from diag.hypotheses import HYPOTHESES, needs
from diag.model import Case, State, Verdict
from diag.signals import SIGNALS
from diag.triage import triage
from diag.triage.compose import compose
from diag.triage.rank import judge
from diag.triage.run import look

IDS = [h.card.id for h in HYPOTHESES]
GROUPS = [(id, group) for id in IDS for group in needs(id)]


@pytest.fixture(scope="module")
def view(everything: Case) -> View:
    return look(everything)


@pytest.fixture(scope="module")
def whole(everything: Case) -> Verdict:
    return triage(everything, now=0.0, version="")


def without(view: View, names: tuple[str, ...]) -> View:
    """The view as it is where none of ``names`` was ever measured, stated or recorded."""
    case = view.case
    stated = {name.removeprefix("fact:") for name in names}
    if "event:any" in names:
        case = replace(case, events=())
    if any(name in SIGNALS and SIGNALS[name].scope == "requests" for name in names):
        case, view = replace(case, requests=None), replace(view, workload=None)
    return replace(
        view,
        case=replace(
            case,
            facts=tuple(f for f in case.facts if f.name not in stated),
            series={name: group for name, group in case.series.items() if name not in names},
        ),
        fleet={name: found for name, found in view.fleet.items() if name not in names},
        each={name: found for name, found in view.each.items() if name not in names},
    )


def silenced(view: View, names: tuple[str, ...]) -> View:
    """The view where what was measured of ``names`` fell silent when things went wrong."""
    bare, template = without(view, names), view.case.of("running_requests")[0]
    values = np.where(template.times < view.onset, 1.0, np.nan)
    measured = [name for name in names if name in SIGNALS and SIGNALS[name].scope != "requests"]
    series = {name: (replace(template, signal=name, values=values),) for name in measured}
    return replace(
        bare,
        case=replace(bare.case, series={**bare.case.series, **series}),
        each={**bare.each, **dict.fromkeys(measured, ())},
    )


def verdict_on(view: View) -> Verdict:
    return compose(view, judge(view), now=0.0, version="")


@pytest.mark.parametrize("id", IDS)
def test_with_everything_there_it_can_be_judged(id: str, whole: Verdict) -> None:
    (found,) = [one for one in whole.assessments if one.id == id]
    assert found.state is not State.NOT_ASSESSABLE
    assert found.evidence
    assert not [one for one in found.missing if one.needed]


@pytest.mark.parametrize(("id", "group"), GROUPS, ids=[f"{id}-{group[0]}" for id, group in GROUPS])
def test_without_a_key_signal_it_is_not_assessable(id: str, group: tuple[str, ...], view: View) -> None:
    verdict = verdict_on(without(view, group))
    (found,) = [one for one in verdict.assessments if one.id == id]
    assert found.state is State.NOT_ASSESSABLE
    assert found.confidence == 0
    assert found.evidence == ()
    assert verdict.leading != id
    needed = [one for one in found.missing if one.needed]
    assert needed
    assert all(one.how_to_get for one in needed)


@pytest.mark.parametrize(
    ("id", "group"), [pytest.param(id, group, id=f"{id}-{group[0]}") for id, group in GROUPS]
)
def test_a_key_signal_that_fell_silent_decides_nothing(id: str, group: tuple[str, ...], view: View) -> None:
    verdict = verdict_on(silenced(view, group))
    (found,) = [one for one in verdict.assessments if one.id == id]
    assert found.state is State.NOT_ASSESSABLE


def test_a_case_without_gpus_or_records_says_so_from_its_series(recorded: Callable[[str], Case]) -> None:
    case = replace(recorded("load_burst"), requests=None)
    states = {one.id: one for one in triage(case, now=0.0, version="").assessments}
    for id in ("thermal_throttle", "power_cap", "noisy_neighbour", "tenant_dominance"):
        assert states[id].state is State.NOT_ASSESSABLE
        assert states[id].missing[0].how_to_get


def test_an_unknown_id_needs_nothing() -> None:
    assert needs("unknown") == ()
