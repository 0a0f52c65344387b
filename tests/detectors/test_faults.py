"""Faults are events: what rests is none, whatever number it rests at."""

from __future__ import annotations

import numpy as np
import pytest

from diag.detectors.faults import Fault, faults_of, watched
from diag.model import Case, Event, Join, Series, Window
from diag.triage.run import look

START, POINTS, AT = 1_000_000.0, 120, 60
GPU = {"gpu": "GPU-1", "node": "n0", "gpu_index": "1"}
OTHER = {"gpu": "GPU-9", "node": "n9", "gpu_index": "0"}


def faults(
    *series: tuple[str, dict[str, str], np.ndarray], events: tuple[Event, ...] = ()
) -> tuple[Fault, ...]:
    times = (START + 5.0 * np.arange(POINTS)).astype(np.float64)
    named: dict[str, tuple[Series, ...]] = {
        "running_requests": (Series("running_requests", {"instance": "e0"}, times, np.ones(POINTS)),)
    }
    for name, labels, values in series:
        named[name] = (*named.get(name, ()), Series(name, labels, times, values.astype(np.float64)))
    case = Case(
        Window(START, float(times[-1])),
        5.0,
        named,
        events=events,
        joins=(Join("e0", "n0", ("GPU-1",), "label"),),
    )
    view = look(case, 5.0)
    # Counters of memory errors know nothing of a card that falls off its bus: Xids alone do.
    xids = any(name.startswith("gpu_xid") and labels == GPU for name, labels, _ in series)
    assert watched(view) == (1.0 if xids else 0.0)
    return faults_of(view)


def since(before: float, value: float) -> np.ndarray:
    return np.where(np.arange(POINTS) < AT, before, value)


@pytest.mark.parametrize("resting", [0.0, 13.0, 79.0])
def test_a_code_that_rests_is_no_event(resting: float) -> None:
    assert faults(("gpu_xid_code", GPU, since(resting, resting))) == ()


def test_a_new_code_is_an_event_and_hard_if_it_is_the_cards_own() -> None:
    (lost,) = faults(("gpu_xid_code", GPU, since(0, 79)))
    assert (lost.time, lost.text, lost.hard, lost.sure) == (START + 5.0 * AT, "Xid 79", True, True)
    (page,) = faults(("gpu_xid_code", GPU, since(0, 31)))
    assert not page.hard


def test_clean_up_is_left_aside_however_often_it_is_counted() -> None:
    counted = np.cumsum(np.ones(POINTS)) * 100
    assert faults(("gpu_xid_events", GPU, counted), ("gpu_xid_code", GPU, np.full(POINTS, 45.0))) == ()


def test_an_error_count_that_grows_is_the_cards_own_fault() -> None:
    (found,) = faults(("gpu_uncorrectable_ecc_errors", GPU, since(3, 5)))
    assert found.hard
    assert faults(("gpu_uncorrectable_ecc_errors", GPU, since(5, 0))) == ()


def test_a_card_that_no_slow_engine_uses_is_left_out() -> None:
    assert faults(("gpu_xid_code", OTHER, since(0, 79))) == ()


def test_the_kernels_lines_count_too() -> None:
    (found,) = faults(events=(Event(START + 100, "xid", "0000:9c:00", "Xid 48: DBE", False),))
    assert found.hard
    assert found.where == "0000:9c:00"
