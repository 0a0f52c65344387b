"""The card's physics: its two calibration points, and what heat and brake do to the clock."""

from __future__ import annotations

import numpy as np
import pytest

from diag.model import Floats
from diag.simulate.gpu import H200, Drive, Trace, run


def drive(
    utilization: float, *, air: float = 24.6, resistance: float = 1.0, cap: float = H200.max_clock_mhz
) -> Drive:
    times: Floats = np.arange(200, dtype=np.float64) * 2.0 + 1000.0
    full = np.ones_like(times)
    return Drive(times, utilization * full, resistance * full, cap * full, air)


def settled(trace: Trace, name: str) -> float:
    return float(np.median(getattr(trace, name)[-50:]))


@pytest.mark.parametrize(
    ("utilization", "watts", "celsius", "memory_celsius"), [(0.0, 78.0, 28.0, 32.0), (1.0, 627.0, 52.0, 40.0)]
)
def test_it_settles_where_the_recorded_pages_do(
    utilization: float, watts: float, celsius: float, memory_celsius: float
) -> None:
    trace = run(H200, drive(utilization), np.random.default_rng(0))
    assert settled(trace, "power_watts") == pytest.approx(watts, abs=5.0)
    assert settled(trace, "celsius") == pytest.approx(celsius, abs=1.0)
    assert settled(trace, "memory_celsius") == pytest.approx(memory_celsius, abs=1.0)


def test_a_cool_card_keeps_its_clock() -> None:
    trace = run(H200, drive(1.0), np.random.default_rng(0))
    assert set(np.unique(H200.max_clock_mhz - trace.clock_mhz)) == {0.0, 15.0}
    assert (trace.reasons != 0).mean() < 0.02
    assert trace.thermal_seconds[-1] == 0.0
    assert trace.power_brake_seconds[-1] == 0.0


def test_heat_costs_clock_and_holds_at_the_threshold() -> None:
    trace = run(H200, drive(1.0, resistance=6.0, air=36.0), np.random.default_rng(0))
    assert 0.45 < settled(trace, "clock_mhz") / H200.max_clock_mhz < 0.7
    assert H200.slowdown_celsius - 4.0 < settled(trace, "celsius") <= H200.slowdown_celsius + 1.0
    assert trace.thermal_seconds[-1] > 200.0


def test_a_brake_costs_clock_and_cools() -> None:
    free = run(H200, drive(1.0), np.random.default_rng(0))
    braked = run(H200, drive(1.0, cap=990.0), np.random.default_rng(0))
    assert settled(braked, "clock_mhz") == 990.0
    assert settled(braked, "celsius") < settled(free, "celsius") - 10.0
    assert settled(braked, "power_watts") < 0.5 * settled(free, "power_watts")
    assert set(np.unique(braked.reasons)) == {float(0x80 | 0x8)}


def test_totals_never_fall() -> None:
    trace = run(H200, drive(1.0, resistance=6.0, cap=1500.0), np.random.default_rng(3))
    for name in ("power_cap_seconds", "thermal_seconds", "power_brake_seconds", "energy_joules"):
        assert (np.diff(getattr(trace, name)) >= 0.0).all()
