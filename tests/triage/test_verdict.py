"""The whole judgement on whole cases: order, time, repetition, silence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diag.hypotheses import HYPOTHESES
from diag.model import Case, Event, Series, State, Verdict, Window
from diag.renderers import render
from diag.triage import triage

Recorded = Callable[[str], Case]
Told = Callable[[Case], str]
MIXED = ["context_growth_reference", "prefix_cache_scattered_long", "kv_cache_exhaustion"]


@pytest.mark.parametrize("name", MIXED)
def test_the_order_of_series_and_rows_does_not_matter(name: str, recorded: Recorded, told: Told) -> None:
    case = recorded(name)
    assert case.requests is not None
    turned = {signal: group[::-1] for signal, group in reversed(list(case.series.items()))}
    rows = case.requests.sample(frac=1, random_state=3).reset_index(drop=True)
    events = case.events[::-1]
    shuffled = replace(case, series=turned, requests=rows, events=events, joins=case.joins[::-1])
    assert told(shuffled) == told(case)


@pytest.mark.parametrize("name", MIXED)
def test_the_order_of_hypotheses_does_not_matter(name: str, recorded: Recorded) -> None:
    orders = (HYPOTHESES, HYPOTHESES[::-1])
    plain, turned = (triage(recorded(name), now=0.0, version="1.2.3", hypotheses=order) for order in orders)
    assert render(plain, "json") == render(turned, "json")


@pytest.mark.parametrize("name", MIXED)
def test_the_same_case_gives_the_same_verdict(name: str, recorded: Recorded, told: Told) -> None:
    assert told(recorded(name)) == told(recorded(name))


def test_the_verdict_does_not_depend_on_the_hash_seed(incidents: Path, checkout: Path) -> None:
    code = (
        "import sys; from diag.api import triage, render; from diag.sources.protocol import Question;"
        "print(render(triage(sys.argv[1], question=Question(now=1.8e9)), 'json'))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code, str(incidents / "prefix_cache_scattered_long")],
            env={**os.environ, "PYTHONHASHSEED": seed}, cwd=checkout,
            check=True, capture_output=True, text=True, timeout=60,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    (text,) = texts
    assert json.loads(text)["leading"] == "prefix_cache_scattered"


def test_the_clock_only_stamps(recorded: Recorded) -> None:
    case = recorded("load_burst")
    one, other = (triage(case, now=now, version="1") for now in (1.0, 2e9))
    assert (one.generated_at, other.generated_at) == (1.0, 2e9)
    assert replace(one, generated_at=0.0) == replace(other, generated_at=0.0)


def moved(case: Case, by: float) -> Case:
    """The same incident at another time."""

    def window(w: Window) -> Window:
        return Window(w.start + by, w.end + by)

    assert case.requests is not None
    return replace(
        case,
        window=window(case.window),
        series={
            k: tuple(
                replace(s, times=s.times + by, values=s.values + (by if "start_time" in k else 0.0))
                for s in v
            )
            for k, v in case.series.items()
        },
        facts=tuple(replace(f, since=f.since + by if f.since is not None else None) for f in case.facts),
        events=tuple(replace(e, time=e.time + by) for e in case.events),
        requests=case.requests.assign(ts=case.requests["ts"] + by),
        page_stalls={k: tuple(window(w) for w in v) for k, v in case.page_stalls.items()},
    )


@pytest.mark.parametrize("name", ["kv_cache_exhaustion", "telemetry_fault", "context_growth_reference"])
def test_an_incident_is_the_same_on_another_day(name: str, recorded: Recorded) -> None:
    case, by = recorded(name), 86_400.0 * 7
    one, other = (triage(c, now=0.0, version="") for c in (case, moved(case, by)))
    assert [(a.id, a.state, a.explained_by) for a in other.assessments] == [
        (a.id, a.state, a.explained_by) for a in one.assessments
    ]
    for a, b in zip(one.assessments, other.assessments, strict=True):
        assert b.confidence == pytest.approx(a.confidence, abs=0.002)
        assert (b.onset is None) == (a.onset is None)
        if a.onset is not None and b.onset is not None:
            assert b.onset - a.onset == pytest.approx(by, abs=0.5)


def _states(verdict: Verdict) -> dict[str, State]:
    return {one.id: one.state for one in verdict.assessments}


def test_a_hot_card_that_nobody_feels_is_not_accused(recorded: Recorded) -> None:
    calm, hot = recorded("healthy_a"), recorded("healthy_thermal")
    by = calm.window.start - hot.window.start
    gpus = {
        name: tuple(replace(s, times=s.times + by) for s in group)
        for name, group in hot.series.items()
        if name.startswith("gpu_")
    }
    assert gpus
    verdict = triage(replace(calm, series={**calm.series, **gpus}), now=0.0, version="")
    assert verdict.leading is None
    assert State.SUPPORTED not in _states(verdict).values()
    assert verdict.incident is None
    # The same card under the slow service is the cause: the test above is no blindness.
    assert triage(hot, now=0.0, version="").leading == "thermal_throttle"


def test_a_deploy_that_nobody_feels_is_not_accused(recorded: Recorded) -> None:
    calm = recorded("healthy_a")
    middle = calm.window.start + calm.window.seconds / 2
    events = tuple(Event(middle + i, kind, "vllm-0:8000", "x") for i, kind in enumerate(("deploy", "config")))
    verdict = triage(replace(calm, events=events), now=0.0, version="")
    assert verdict.leading is None
    assert any(moment.time == middle for moment in verdict.timeline)


def test_a_frozen_page_is_named_although_nobody_is_slower(recorded: Recorded) -> None:
    verdict = triage(recorded("telemetry_fault"), now=0.0, version="")
    assert verdict.symptoms == ()
    assert verdict.leading == "telemetry_fault"
    others = [id for id, state in _states(verdict).items() if state is State.SUPPORTED]
    assert others == ["telemetry_fault"]


def step(signal: str, before: float, during: float, seed: int = 1) -> Series:
    times = 1_000_000.0 + 5.0 * np.arange(200, dtype=np.float64)
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.03, 200))
    return Series(
        signal, {"instance": "e0"}, times, np.where(np.arange(200) < 120, before, during) * noise, "test"
    )


def lonely(*parts: Series) -> Case:
    window = Window(1_000_000.0, 1_000_995.0)
    return Case(window, 5.0, {part.signal: (part,) for part in parts})


def test_a_symptom_that_nothing_explains_is_unknown_and_leaves_leads() -> None:
    case = lonely(
        step("ttft_seconds_mean", 0.2, 4.0), step("ttft_seconds_p95", 0.3, 6.0, 2),
        step("running_requests", 4, 4, 3), step("waiting_requests", 0, 0),
        step("kv_cache_usage_ratio", 0.1, 0.1, 4), step("first_tokens_per_second", 5, 5, 5),
        step("prompt_tokens_per_request_mean", 900, 900, 6),
    )  # fmt: skip
    verdict = triage(case, now=0.0, version="")
    assert verdict.leading == "unknown"
    assert verdict.assessments[0].id == "unknown"
    assert verdict.assessments[0].onset == pytest.approx(1_000_600.0, abs=15)
    assert {"ttft_seconds_mean", "ttft_seconds_p95"} <= {lead.signal for lead in verdict.leads}
    assert [id for id, s in _states(verdict).items() if s is State.SUPPORTED and id != "unknown"] == []
    assert verdict.incident is not None


def test_nothing_at_all_is_judged_without_a_word_of_blame() -> None:
    verdict = triage(Case(Window(0.0, 3600.0), 15.0, {}), now=0.0, version="")
    assert verdict.leading is None
    states = _states(verdict)
    assert {id for id, state in states.items() if state is not State.NOT_ASSESSABLE} == {"unknown"}
    assert verdict.coverage.signals_present == 0


def test_a_window_of_a_few_scrapes_is_no_error() -> None:
    for points in (1, 2, 5, 9):
        parts = [step("ttft_seconds_mean", 0.2, 4.0), step("kv_cache_usage_ratio", 0.1, 0.9)]
        short = [replace(p, times=p.times[:points], values=p.values[:points]) for p in parts]
        case = replace(lonely(*short), window=Window(1_000_000.0, 1_000_000.0 + 5 * points))
        verdict = triage(case, now=0.0, version="")
        assert verdict.leading is None
        assert State.RULED_OUT not in {
            state for id, state in _states(verdict).items() if id not in ("unknown", "kv_cache_exhaustion")
        }


def test_what_a_person_marked_is_believed(recorded: Recorded) -> None:
    case = recorded("load_burst")
    onset = 1795989516.0
    marked = replace(case, baseline=Window(case.window.start, onset - 10))
    verdict = triage(marked, now=0.0, version="")
    assert verdict.baseline == marked.baseline
    assert verdict.leading == "load_burst"
    assert verdict.incident is not None
    assert verdict.incident.start == pytest.approx(onset, abs=60)


@pytest.mark.parametrize("name", ["context_growth_reference", "kv_cache_exhaustion", "load_burst"])
def test_explanations_end_in_a_supported_root(name: str, recorded: Recorded) -> None:
    verdict = triage(recorded(name), now=0.0, version="")
    by_id = {one.id: one for one in verdict.assessments}
    explained = [one for one in verdict.assessments if one.explained_by is not None]
    assert explained
    for one in explained:
        path = [one.id]
        while (parent := by_id[path[-1]].explained_by) is not None:
            assert parent not in path
            assert by_id[parent].state is State.SUPPORTED
            path.append(parent)


# A defect: the logarithms' mean of a row like (4, 0.02) is negative up to a degree of 0.74, so that a
# prediction that came true, if only just, is shown as "for" and counted against.
def test_weights_and_stances_agree(everything: Case) -> None:
    """What is told as speaking for a cause must not have been counted against it."""
    wrong = []
    for one in triage(everything, now=0.0, version="").assessments:
        wrong += [
            (one.id, e.cue, e.stance, round(e.weight, 2), round(e.degree, 2))
            for e in one.evidence
            if (e.weight < 0) == (e.stance == "for") and abs(e.weight) > 1e-9
        ]
    assert wrong == []
