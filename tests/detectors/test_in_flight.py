"""Requests under way, whether the crowd makes the wait, and failures at a round time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from diag.detectors.in_flight import crowding, deadline_of, under_way
from diag.detectors.view import View
from diag.model import Case, Window
from diag.records.cohorts import Requests, from_frame
from diag.triage.run import look

START = 1_000_000.0


def requests(**columns: Any) -> Requests:
    count = len(columns["ts"])
    return from_frame(pd.DataFrame({"status": ["ok"] * count, **columns}), START + 10_000.0)


def view(columns: dict[str, Any]) -> View:
    """Arrivals over 1,000 s; the second half is the incident."""
    frame = pd.DataFrame({"status": "ok", "prompt_tokens": 500.0, **columns})
    window = Window(START, START + 1000.0)
    half = START + 500.0
    case = Case(
        window, 5.0, {}, requests=frame, baseline=Window(START, half - 1), incident=Window(half, window.end)
    )
    return look(case, 5.0)


def arrivals(seed: int = 1) -> np.ndarray:
    return np.sort(START + np.random.default_rng(seed).uniform(0, 1000, 900))


def served(ts: np.ndarray, slots: int) -> np.ndarray:
    """Seconds until the first token where ``slots`` are served at a time, four seconds each."""
    free, waits = [0.0] * slots, []
    for sent in ts:
        slot = min(range(slots), key=lambda s: free[s])
        begin = max(sent, free[slot])
        free[slot] = begin + 4.0
        waits.append(begin - sent)
    return np.array(waits) + 0.2


def test_under_way_counts_open_requests_and_those_that_never_ended() -> None:
    found = requests(
        ts=[START, START + 1, START + 2], duration_seconds=[5.0, 1.5, np.nan], ttft_seconds=[0.1, 0.1, 4.0]
    )
    assert under_way(found, np.array([START + 0.5, START + 2.2, START + 3, START + 7])).tolist() == [
        1,
        3,
        2,
        0,
    ]


def test_in_a_queue_the_crowd_makes_the_wait() -> None:
    ts = arrivals()
    waits = np.where(ts < START + 500, 0.2, served(ts, 4))
    found = crowding(view({"ts": ts, "ttft_seconds": waits, "duration_seconds": waits + 3.8}))
    assert found is not None
    assert found > 0.6


def test_of_a_gateway_s_log_only_what_it_held_back_counts_as_wait() -> None:
    # Answers far longer than the wait, and as varied, would drown it.
    ts = arrivals()
    held = np.where(ts < START + 500, 0.0, served(ts, 4))
    upstream = np.random.default_rng(4).lognormal(5.0, 0.8, len(ts))
    log = {"ts": ts, "duration_seconds": held + upstream, "upstream_response_seconds": upstream}
    seen = view(log)
    found = crowding(seen)
    assert found is not None
    assert found > 0.3
    felt = {e.course.signal for e in seen.episodes}
    assert {"gateway_wait_seconds_mean", "gateway_wait_seconds_p95"} <= felt
    without = crowding(view({name: log[name] for name in ("ts", "duration_seconds")}))
    assert without is not None
    assert without < 0.3


@pytest.mark.parametrize("climb", [0.0, 4.0])
def test_on_a_slow_way_it_does_not_even_where_the_way_gets_slower_and_slower(climb: float) -> None:
    ts = arrivals()
    rng = np.random.default_rng(2)
    since = np.maximum(ts - START - 500, 0) / 500
    waits = 0.2 + np.where(ts < START + 500, 0.0, 2.0 + climb * since) * rng.lognormal(0, 0.3, len(ts))
    found = crowding(view({"ts": ts, "ttft_seconds": waits, "duration_seconds": waits + 1.0}))
    assert found is not None
    assert abs(found) < 0.25


def test_failures_at_a_round_time_are_told_from_failures_at_any() -> None:
    rng = np.random.default_rng(3)
    ts = START + np.arange(40.0)
    inc = ts >= START + 10
    status = np.where(np.arange(40) % 2 == 0, "error", "ok")
    at_sixty = requests(ts=ts, status=status, duration_seconds=60 + rng.uniform(0, 0.1, 40))
    anywhen = requests(ts=ts, status=status, duration_seconds=rng.uniform(1, 90, 40))
    found, none = deadline_of(at_sixty, ~inc, inc), deadline_of(anywhen, ~inc, inc)
    assert found is not None
    assert none is not None
    assert (found.seconds, found.share) == (60.0, 1.0)
    assert none.share < 0.4
    assert deadline_of(at_sixty, inc, ~inc & (ts < START + 4)) is None
