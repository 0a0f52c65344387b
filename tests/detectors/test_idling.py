"""Cards that run nothing while their engine holds requests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from diag.detectors.findings import Spans
from diag.detectors.idling import Idling, idling_of
from diag.detectors.view import view_of
from diag.model import Case, Floats, Join, Series, Window

STEP, N, AT = 5.0, 240, 120
POINTS = np.arange(N)
Make = Callable[..., Case]
MakeSeries = Callable[..., Series]
Look = Callable[..., Idling | None]


@pytest.fixture
def idling(series: MakeSeries, case: Make) -> Look:
    """Of an engine on GPU-1 of n0 whose card is as busy as ``busy`` says."""

    def make(busy: Floats, running: Floats | None = None, gpu: str = "GPU-1") -> Idling | None:
        parts = (
            series("gpu_utilization_ratio", busy, "dcgm", node="n0", gpu=gpu),
            series("running_requests", np.full(N, 4.0) if running is None else running),
        )
        made = case(*parts, joins=(Join("e0", "n0", ("GPU-1",), "label"),))
        start = made.window.start
        spans = Spans(
            Window(start, start + STEP * (AT - 1)), Window(start + STEP * AT, made.window.end), STEP, STEP
        )
        return idling_of(view_of(made, spans, (), None))

    return make


def test_a_card_that_waits_is_seen_and_how_evenly(idling: Look) -> None:
    even = idling(np.where(POINTS < AT, 0.99, 0.7))
    halts = idling(np.where((POINTS < AT) | (POINTS % 4 > 0), 0.99, 0.0))
    assert even is not None
    assert halts is not None
    assert even.degree > 0.9
    assert even.full_ratio == 0
    assert even.during == pytest.approx(0.3)
    assert halts.degree > 0.9
    assert halts.full_ratio == pytest.approx(0.75, abs=0.05)


def test_halts_that_grow(idling: Look) -> None:
    grows = idling(np.where(POINTS < AT, 0.99, 0.95 - 0.6 * (POINTS - AT) / (N - AT)))
    stays = idling(np.where(POINTS < AT, 0.99, 0.7))
    assert grows is not None
    assert stays is not None
    assert grows.growth > 2 > 1.2 > stays.growth


def test_a_card_without_work_does_not_wait(idling: Look) -> None:
    assert idling(np.where(POINTS < AT, 0.99, 0.5), np.where(POINTS < AT, 4.0, 0.0)) is None


def test_the_card_of_another_engine_tells_nothing(idling: Look) -> None:
    assert idling(np.where(POINTS < AT, 0.99, 0.5), gpu="GPU-7") is None


def test_one_odd_scrape_is_no_wait(idling: Look) -> None:
    odd = idling(np.where(POINTS == AT + 9, 0.0, 0.99))
    assert odd is not None
    assert odd.degree < 0.1
