"""What somebody changed, when it counts from, and which target was away."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from diag.detectors.changes import changes_of, outages_of
from diag.model import Case, Event, Fact, Series

START, STEP, N = 1_000_000.0, 5.0, 100
Make = Callable[..., Case]
MakeSeries = Callable[..., Series]


def at(point: int) -> float:
    return START + STEP * point


def started(series: MakeSeries, when: float, first: int, instance: str = "e0") -> Series:
    values = np.full(N, START - 5000.0)
    values[first:] = when
    return series("engine_start_time_seconds", values, instance=instance)


def up(series: MakeSeries, down: slice, instance: str = "e0") -> Series:
    values = np.ones(N)
    values[down] = 0.0
    return series("target_up", values, instance=instance)


def test_a_restart_counts_from_when_the_process_went_away(case: Make, series: MakeSeries) -> None:
    # Down from point 40, started anew at point 46, answering (and seen) from point 50 on.
    known = case(started(series, at(46), 50), up(series, slice(40, 50)))
    (change,) = changes_of(known)
    assert change.kind == "restart"
    assert change.target == "e0"
    assert change.time == at(40)


def test_a_restart_without_an_outage_counts_from_its_own_start_time(case: Make, series: MakeSeries) -> None:
    (change,) = changes_of(case(started(series, at(46), 50)))
    assert change.time == at(46)
    (other,) = changes_of(case(started(series, at(46), 50), up(series, slice(40, 50), instance="e1")))
    assert other.time == at(46)


def test_a_restart_long_after_an_outage_is_another_matter(case: Make, series: MakeSeries) -> None:
    (change,) = changes_of(case(started(series, at(80), 81), up(series, slice(10, 13))))
    assert change.time == at(80)


def test_a_start_time_that_stays_is_no_restart(case: Make, series: MakeSeries) -> None:
    values = np.full(N, START - 5000.0)
    values[30:60] = np.nan
    values[60:] += 0.4
    assert changes_of(case(series("engine_start_time_seconds", values))) == ()


def test_a_setting_that_came_back_different_counts_from_the_outage(case: Make, series: MakeSeries) -> None:
    facts = (
        Fact("kv_blocks", "8800", {"instance": "e0"}, "metrics", since=at(0)),
        Fact("kv_blocks", "66", {"instance": "e0"}, "metrics", since=at(51)),
        Fact("kv_blocks", "8800", {"instance": "e1"}, "metrics", since=at(52)),
    )
    (change,) = changes_of(case(up(series, slice(40, 50)), facts=facts))
    assert (change.kind, change.signal) == ("fact", "kv_blocks")
    assert (change.before, change.after) == ("8800", "66")
    assert change.time == at(40)
    assert "8800" in change.text
    assert "66" in change.text


def test_a_setting_said_again_or_by_another_source_is_no_change(case: Make, series: MakeSeries) -> None:
    facts = (
        Fact("max_num_seqs", "16", {"instance": "e0"}, "log", since=at(0)),
        Fact("max_num_seqs", "16", {"instance": "e0"}, "log", since=at(50)),
        Fact("max_num_seqs", "2", {"instance": "e0"}, "metrics", since=at(60)),
        Fact("colour", "red", {"instance": "e0"}, "log", since=at(0)),
        Fact("colour", "blue", {"instance": "e0"}, "log", since=at(50)),
    )
    assert changes_of(case(up(series, slice(0, 0)), facts=facts)) == ()


def test_only_what_people_marked_is_an_event_and_all_come_in_time_order(
    case: Make, series: MakeSeries
) -> None:
    events = (
        Event(at(70), "deploy", "e0", "new image"),
        Event(at(20), "config", "gateway", "new route"),
        Event(at(30), "preemption", "e0", "seen in a log", marked=False),
        Event(at(35), "other", "e0", "a remark"),
    )
    found = changes_of(case(started(series, at(46), 50), events=events))
    assert [(c.time, c.kind) for c in found] == [(at(20), "event"), (at(46), "restart"), (at(70), "event")]


@pytest.mark.parametrize(
    ("down", "expected"),
    [
        (slice(10, 11), []),
        (slice(10, 12), [(10, 11, 2)]),
        (slice(90, 100), [(90, 99, 10)]),
        (slice(0, 3), [(0, 2, 3)]),
    ],
)
def test_an_outage_takes_two_failed_scrapes(
    down: slice, expected: list[tuple[int, int, int]], case: Make, series: MakeSeries
) -> None:
    found = outages_of(case(up(series, down)))
    assert [(o.window.start, o.window.end, o.scrapes) for o in found] == [
        (at(first), at(last), scrapes) for first, last, scrapes in expected
    ]


def test_a_scrape_that_nobody_made_is_no_failed_one(case: Make, series: MakeSeries) -> None:
    values = np.ones(N)
    values[20:40] = np.nan
    assert outages_of(case(series("target_up", values))) == ()


def test_a_pool_of_another_size_is_a_change_where_its_size_is_exported(
    case: Make, series: MakeSeries
) -> None:
    values = np.full(N, 100_000.0)
    values[40:45], values[45:] = np.nan, 50_000.0
    found = changes_of(case(series("kv_capacity_tokens", values)))
    assert [(c.time, c.kind, c.signal, c.before, c.after) for c in found] == [
        (at(45), "fact", "kv_capacity_tokens", "100000", "50000")
    ]
