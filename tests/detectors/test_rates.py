"""The rate of the whole service, not of those who are slow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from diag.detectors.episodes import Episode
from diag.detectors.findings import Spans
from diag.detectors.rates import rate_over_all
from diag.detectors.symptoms import Course
from diag.detectors.view import View, view_of
from diag.model import Case, Series, Window

START, STEP, N, AT = 1_000_000.0, 5.0, 120, 60


def level(before: float, during: float) -> np.ndarray:
    return np.where(np.arange(N) < AT, before, during) * (1 + 0.01 * np.sin(np.arange(N)))


def look(case: Case) -> View:
    """A view in which the instance "e0" is slow."""
    times = START + STEP * np.arange(N, dtype=np.float64)
    spans = Spans(
        Window(START, START + STEP * (AT - 1)), Window(START + STEP * AT, START + STEP * (N - 1)), STEP, STEP
    )
    course = Course("ttft_seconds_mean", {"instance": "e0"}, "seconds", times, level(0.1, 2.0), 1)
    slow = Episode(course, times[AT], times[-1], 0.1, 2.0, 3.0, 0.5, 9.0)
    return view_of(case, spans, (slow,), None)


@pytest.mark.parametrize(("other", "moved"), [(0.2, False), (3.0, True)])
def test_a_replica_that_takes_anothers_part_is_no_burst(
    series: Callable[..., Series], case: Callable[..., Case], other: float, moved: bool
) -> None:
    signals = ("running_requests", "first_tokens_per_second")
    made = [series(n, level(1.0, v), i) for n in signals for i, v in (("e0", 1.8), ("e1", other))]
    view = look(case(*made))
    own, over_all = view.finding("first_tokens_per_second"), rate_over_all(view)
    assert own is not None
    assert over_all is not None
    assert own.effect >= 1
    assert (over_all.effect >= 1) is moved


def test_a_rate_that_nobody_measures_is_unknown(
    series: Callable[..., Series], case: Callable[..., Case]
) -> None:
    assert rate_over_all(look(case(series("running_requests", level(1.0, 1.0), "e0")))) is None
