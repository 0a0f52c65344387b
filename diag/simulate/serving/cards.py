"""The GPUs of a run, one coarse tick after the other: load makes power and heat, and these the clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diag.simulate.gpu import H200, State
from diag.simulate.observed import Card
from diag.simulate.plan import Gpu
from diag.simulate.serving.reading import integrate, reader

__all__ = ["RunningCard"]

_SUBSTEP_SECONDS = 0.5
_SPIN_WORK = 0.25  # of a full load's power that a kernel draws which only waits
_ROWS = (
    "utilization_ratio", "clock_ratio", "power_watts", "celsius", "thermal_seconds", "power_cap_seconds",
    "brake_seconds", "foreign_sm_ratio", "foreign_memory_bytes", "power_limit_watts", "link_ratio",
    "link_errors", "energy_joules",
)  # fmt: skip


class RunningCard:
    """One card under what acts on it. ``engine``: name of the replica on it, "" for none. ``share``: of
    its power limit that the model draws at full load."""

    def __init__(self, host: str, index: int, engine: str, gpu: Gpu, share: float, start: float) -> None:
        self.engine = engine
        self._host = host
        self._index = index
        self._card = replace(H200, full_watts=share * H200.limit_watts)
        self._resistance = reader(gpu.resistance)
        self._air = reader(gpu.air_celsius)
        self._cap = reader(gpu.clock_cap_ratio)
        self._limit = reader(gpu.power_limit_ratio)
        self._foreign = reader(gpu.foreign_sm_ratio)
        self._memory = reader(gpu.foreign_memory_bytes)
        self._slow = reader(gpu.slow_factor)
        self._link = reader(gpu.link_ratio)
        self._errors = reader(gpu.link_errors_per_second)
        self._error_count = 0.0
        self._utilization = 0.0
        self._work = 0.3
        self._state = State(self._card, self._work, self._resistance(start), self._air(start))
        self._rows: list[tuple[float, ...]] = []
        self._read(start)

    def _read(self, now: float) -> None:
        self.link_ratio = max(self._link(now), 0.01)
        self.foreign_ratio = min(self._foreign(now), 0.95)
        self.slow_factor = self._slow(now)
        self.clock_ratio = self._state.clock / self._card.max_clock_mhz

    def tick(self, now: float, seconds: float, busy_ratio: float, spins: bool) -> None:
        """The last ``seconds``, in which the engine kept the card busy for ``busy_ratio`` of them."""
        foreign = self.foreign_ratio
        engine = _SPIN_WORK if spins else busy_ratio / self.slow_factor
        busy = 1.0 if spins else busy_ratio
        # The other process works while the engine idles, and takes its share when it does not.
        self._utilization = busy + foreign * (1.0 - busy)
        self._work = engine * (1.0 - foreign) + foreign
        state, card = self._state, self._card
        cap = card.max_clock_mhz * self._cap(now)
        limit = card.limit_watts * self._limit(now)
        resistance, air = self._resistance(now), self._air(now)
        if state.cool(self._work, resistance, air):
            state.drift(seconds, self._work, resistance, cap, air, limit)
        else:
            steps = max(round(seconds / _SUBSTEP_SECONDS), 1)
            for _ in range(steps):
                state.advance(seconds / steps, self._work, resistance, cap, air, limit)
        self._error_count += integrate(self._errors, now - seconds, now)
        self._read(now)

    def scrape(self, now: float) -> None:
        """Write what a scrape finds now, in the order of ``_ROWS``."""
        state = self._state
        self._rows.append((
            self._utilization, self.clock_ratio, state.watts(self._work), state.celsius,
            state.thermal_seconds, state.power_cap_seconds, state.brake_seconds, self.foreign_ratio,
            self._memory(now), self._card.limit_watts * self._limit(now), self.link_ratio, self._error_count,
            state.joules,
        ))  # fmt: skip

    def observed(self) -> Card:
        """The rows as arrays."""
        rows = np.array(self._rows, dtype=np.float64)
        return Card(
            self._host, self._index, self.engine, {name: rows[:, at] for at, name in enumerate(_ROWS)}
        )
