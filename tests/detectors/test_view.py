"""The prepared view: pins, contrast, phases, facts in time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from diag.detectors.episodes import Episode
from diag.detectors.findings import Spans
from diag.detectors.symptoms import Course
from diag.detectors.view import Phases, View, view_of
from diag.model import Case, Fact, Floats, Series, Window

START, STEP, N, AT = 1_000_000.0, 5.0, 120, 60
Make = Callable[..., Case]
MakeSeries = Callable[..., Series]


def time(point: int) -> float:
    return START + STEP * point


def level(before: float, during: float) -> np.ndarray:
    return np.where(np.arange(N) < AT, before, during)


def look(case: Case, *hit: str) -> View:
    spans = Spans(Window(time(0), time(AT - 1)), Window(time(AT), time(N - 1)), STEP, STEP)
    times: Floats = START + STEP * np.arange(N, dtype=np.float64)
    episodes = tuple(
        Episode(
            Course("ttft_seconds_mean", {"instance": name}, "seconds", times, level(0.1, 2.0), 1),
            time(AT), time(N - 1), 0.1, 2.0, 3.0, 0.5, 9.0,
        )
        for name in hit
    )  # fmt: skip
    return view_of(case, spans, episodes, None)


def test_running_at_one_ceiling_while_others_wait_is_a_pin(case: Make, series: MakeSeries) -> None:
    running = level(9.0, 4.0)
    view = look(case(
        series("running_requests", running), series("waiting_requests", level(0.0, 7.0)),
        series("kv_cache_usage_ratio", level(0.1, 0.3)),
    ))  # fmt: skip
    (pin,) = view.pins
    assert (pin.instance, pin.ceiling, pin.before_most, pin.share) == ("e0", 4.0, 9.0, 1.0)
    assert pin.binds
    assert pin.waiting == 7.0
    assert pin.kv_usage == pytest.approx(0.3)
    assert pin.onset == time(AT)


def test_running_that_varies_or_nobody_waiting_is_no_pin(case: Make, series: MakeSeries) -> None:
    varied = level(4.0, 4.0)
    varied[AT:] = 4 + np.arange(N - AT) % 5
    waiting = series("waiting_requests", level(0.0, 7.0))
    assert [p for p in look(case(series("running_requests", varied), waiting)).pins if p.binds] == []
    alone = series("running_requests", level(4.0, 4.0))
    assert look(case(alone, series("waiting_requests", level(0.0, 0.0)))).pins == ()
    assert look(case(alone)).pins == ()
    elsewhere = series("waiting_requests", level(0.0, 7.0), instance="e1")
    assert look(case(alone, elsewhere)).pins == ()


def test_a_pin_without_a_memory_gauge_knows_no_memory(case: Make, series: MakeSeries) -> None:
    view = look(case(
        series("running_requests", level(9.0, 4.0)), series("waiting_requests", level(0.0, 7.0)),
        series("kv_cache_usage_ratio", np.full(N, np.nan)),
    ))  # fmt: skip
    assert view.pins[0].kv_usage is None


def test_instances_without_a_symptom_are_the_control(case: Make, series: MakeSeries) -> None:
    known = case(
        *(series("ttft_seconds_mean", level(0.1, late), instance=i) for i, late in (("a", 2.0), ("b", 0.1))),
        *(series("waiting_requests", level(0.0, late), instance=i) for i, late in (("a", 6.0), ("b", 0.0))),
    )
    view = look(known, "a")
    assert (view.affected, view.spared) == (("a",), ("b",))
    # What is said of the fleet is said of those who are hit.
    assert view.fleet["ttft_seconds_mean"].during == pytest.approx(2.0)
    assert view.fleet["waiting_requests"].during == pytest.approx(6.0)
    assert [f.labels["instance"] for f in view.each["waiting_requests"]] == ["a", "b"]
    nobody = look(known)
    assert (nobody.affected, nobody.spared) == ((), ())
    assert not nobody.symptomatic


def test_the_extra_wait_is_split_into_phases(case: Make, series: MakeSeries) -> None:
    view = look(case(
        series("ttft_seconds_mean", level(0.2, 2.2)), series("queue_seconds_mean", level(0.0, 1.5)),
        series("prefill_seconds_mean", level(0.1, 0.4)),
    ), "e0")  # fmt: skip
    phases = view.phases
    assert phases.engine == pytest.approx(2.0)
    assert phases.share("queue") == pytest.approx(0.75)
    assert phases.share("prefill") == pytest.approx(0.15)
    assert phases.share("front") == pytest.approx(0.1)
    # Nobody asked the clients: unknown, not none.
    assert phases.client is None
    assert phases.share("gap") is None


def test_no_share_of_an_excess_that_is_none() -> None:
    assert Phases(None, 0.01, None, 0.01, 0.0, 0.0).share("queue") is None
    assert Phases(2.0, None, 3.0, None, None, None).share("gap") == 1.0
    assert Phases(2.0, None, -1.0, None, None, None).share("gap") == 0.0


def test_a_fact_is_that_of_its_time(case: Make, series: MakeSeries) -> None:
    facts = (
        Fact("prefix_caching", "on", {}, "log"),
        Fact("prefix_caching", "off", {}, "log", since=time(80)),
    )
    view = look(case(series("target_up", np.ones(N)), facts=facts))
    assert view.fact("prefix_caching") == "off"
    assert view.fact("prefix_caching", time(70)) == "on"
    assert view.fact("max_num_seqs") is None


def test_a_series_without_data_in_the_incident_is_no_finding(case: Make, series: MakeSeries) -> None:
    view = look(case(series("waiting_requests", np.where(np.arange(N) < AT, 1.0, np.nan))))
    assert view.finding("waiting_requests") is None
    assert view.each["waiting_requests"] == ()
    assert view.finding("running_requests", "waiting_requests") is None
