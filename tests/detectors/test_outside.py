"""The time outside the engine: the same first tokens on both sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from diag.detectors.findings import Spans
from diag.detectors.outside import outside_engine
from diag.model import Case, Floats, Series, Window
from diag.records.cohorts import Requests, from_frame

START, STEP, N, AT = 1_000_000.0, 5.0, 240, 120
END = START + STEP * (N - 1)
ONSET = START + STEP * AT
SPANS = Spans(Window(START, ONSET - STEP), Window(ONSET, END), STEP, STEP)
Make = Callable[..., Case]
MakeSeries = Callable[..., Series]


def queueing(way_seconds: float) -> tuple[Requests, Floats, Floats]:
    """Two requests a second of which one and a half are served since the onset: the client's records, and the
    engine's mean and rate of first tokens on the grid. ``way_seconds`` pass before the engine since then."""
    sent = START + np.arange(0.0, END - START, 0.5)
    behind = np.maximum(sent - ONSET, 0.0)
    inside = 0.2 + behind / 3.0
    way = np.where(behind > 0, way_seconds, 0.0)
    came = sent + way + inside
    grid = START + STEP * np.arange(N)
    mean, rate = np.full(N, np.nan), np.zeros(N)
    for i, t in enumerate(grid):
        now = (came > t - STEP) & (came <= t)
        rate[i] = now.sum() / STEP
        mean[i] = inside[now].mean() if now.any() else np.nan
    frame = pd.DataFrame({"ts": sent, "status": "ok", "ttft_seconds": way + inside})
    return from_frame(frame, END), mean, rate


@pytest.mark.parametrize("way_seconds", [0.0, 2.0])
def test_requests_that_still_wait_do_not_make_a_full_engine_a_slow_way(
    case: Make, series: MakeSeries, way_seconds: float
) -> None:
    requests, mean, rate = queueing(way_seconds)
    known = case(series("ttft_seconds_mean", mean), series("first_tokens_per_second", rate))
    found = outside_engine(known, requests, SPANS)
    assert found is not None
    outside, inside = found
    assert outside == pytest.approx(way_seconds, abs=1.5)
    assert inside > 50
    # By arrival the client's side alone would hold those who wait when the records end.
    late = requests.ts >= ONSET
    assert float(np.mean(requests.ttft[late])) - inside > 10


def test_one_side_alone_tells_nothing(case: Make, series: MakeSeries) -> None:
    requests, mean, _ = queueing(0.0)
    assert outside_engine(case(series("running_requests", np.ones(N))), requests, SPANS) is None
    few = from_frame(pd.DataFrame({"ts": [START + 1.0], "status": "ok", "ttft_seconds": [0.2]}), END)
    assert outside_engine(case(series("ttft_seconds_mean", mean)), few, SPANS) is None
