"""A window that is bad all along is told from one that is quiet; neither accuses anybody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from diag.model import Case, Series, State, Verdict, Window
from diag.triage import triage
from diag.triage.run import look

START, STEP, N = 1_000_000.0, 5.0, 200
WINDOW = Window(START, START + STEP * (N - 1))


def case(ttft: float, failing: float = 0.0, waited: float | None = None) -> Case:
    """One engine, the same from first to last; ``waited``: what its clients recorded, if they did."""
    times = START + STEP * np.arange(N, dtype=np.float64)
    wiggle = 1 + 0.01 * np.sin(np.arange(N))
    levels = {
        "running_requests": 4.0, "first_tokens_per_second": 2.0, "prompt_tokens_per_request_mean": 900.0,
        "ttft_seconds_p95": ttft, "ttft_seconds_mean": ttft / 2, "error_ratio": failing,
    }  # fmt: skip
    series = {
        name: (Series(name, {"instance": "e0"}, times, level * wiggle, "vllm"),)
        for name, level in levels.items()
    }
    requests = None
    if waited is not None:
        ts = np.arange(START, WINDOW.end, 2.0)
        requests = pd.DataFrame({"ts": ts, "status": "ok", "prompt_tokens": 900.0, "ttft_seconds": waited})
    return Case(WINDOW, STEP, series, requests=requests)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (case(8.0), "first tokens took 8"),
        (case(0.3, waited=30.0), "first tokens took 30 s (95th percentile) all along"),
        (case(0.3, failing=0.2), "of requests failed all along"),
    ],
)
def test_a_window_that_is_bad_all_along_is_no_quiet_time(given: Case, said: str) -> None:
    verdict = triage(given, now=WINDOW.end, version="0")
    assert verdict.leading is None
    assert verdict.summary.startswith("No incident begins in this window, but it is no quiet time: ")
    assert said in verdict.summary
    assert any("look further back with --from" in note for note in verdict.notes)


def test_without_a_quiet_time_nothing_is_excluded_by_having_stayed_as_it_was() -> None:
    def burst(verdict: Verdict) -> State:
        (found,) = [one for one in verdict.assessments if one.id == "load_burst"]
        return found.state

    quiet, bad = (triage(case(ttft), now=WINDOW.end, version="0") for ttft in (0.3, 8.0))
    assert (burst(quiet), burst(bad)) == (State.RULED_OUT, State.UNDECIDED)


def test_a_quiet_window_is_told_as_one() -> None:
    assert look(case(0.3, waited=0.4)).bad_before == ""
    summary = triage(case(0.3, waited=0.4), now=WINDOW.end, version="0").summary
    assert summary == "No incident in this window: nothing that users feel got worse."


def test_a_half_that_nobody_recorded_is_not_slow() -> None:
    given = case(0.3, waited=30.0)
    assert given.requests is not None
    late = given.requests["ts"] > START + WINDOW.seconds / 2
    half = given.requests.assign(ttft_seconds=np.where(late, np.nan, 30.0))
    assert look(replace(given, requests=half)).bad_before == ""
