"""The hosts of a run: CPU, memory and network, and what a shortage of them does to the engines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.simulate.observed import Node
from diag.simulate.plan import Host
from diag.simulate.serving.reading import integrate, reader

__all__ = ["Burden", "RunningHost"]

_STARVED_STEP_SECONDS = 0.03  # assumed: what a wholly starved engine waits for a CPU in a step
_STARVED_FRONT_FACTOR = 12.0
_SWAPPING_STEP_SECONDS = 0.012
_SWAPPING_FRONT_FACTOR = 20.0
_THIN_RATIO = 0.05  # of memory; below it the kernel begins to swap
_SWAP_BYTES = 16e9
_FAULTS_PER_SECOND = 3000.0
_ENGINE_BYTES = 22e9
_SYSTEM_BYTES = 14e9
_BACKEND_BYTES = 2.5e9
_FAR_RATIO = 0.25  # at most: of a step, when every access is remote
_RETRANSMIT_SECONDS = 0.2
_ROWS = (
    "cpu_busy_ratio", "cpu_throttled_ratio", "load", "cpu_pressure_ratio", "memory_available_bytes",
    "swap_bytes", "major_faults", "oom_kills", "backend_resident_bytes", "far_ratio", "retransmits",
    "segments", "drops", "fabric_errors", "fabric_downs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Burden:
    """What a host costs its engines. ``stretch``: multiple of a step; ``step_seconds``: added to one;
    ``front_factor``: multiple of the work before the scheduler."""

    stretch: float = 1.0
    step_seconds: float = 0.0
    front_factor: float = 1.0


class RunningHost:
    """One host with ``engines`` replicas on it. ``downs``: times at which its fabric links go down."""

    def __init__(
        self, host: Host, engines: int, downs: list[float], start: float, rng: np.random.Generator
    ) -> None:
        self.name = host.name
        self._host = host
        self._engines = engines
        self._downs = downs
        self._rng = rng
        self._other = reader(host.other_cpu_ratio)
        self._quota = reader(host.cpu_quota_ratio)
        self._leak = reader(host.leak_bytes)
        self._far = reader(host.far_ratio)
        self._network = reader(host.network_seconds)
        self._retransmit = reader(host.retransmit_ratio)
        self._drop_rate = reader(host.drops_per_second)
        self._error_rate = reader(host.fabric_errors_per_second)
        self._retransmits = self._segments = self._drops = self._errors = 0.0
        self._faults = self._kills = 0.0
        self._dying = False
        self._rows: list[tuple[float, ...]] = []
        self._judge(start, 0.5 * engines)

    def _judge(self, now: float, need: float) -> None:
        """Take stock; ``need``: CPUs that the engines would use."""
        host = self._host
        own = need / host.cpus
        quota = min(max(self._quota(now), 0.02), 1.0)
        demand = self._other(now) + own * quota
        self._starved = min(max((demand - 1.0) / max(own, 1e-6), 0.0), 1.0)
        self._demand, self._throttled = demand, 1.0 - quota
        free = (
            host.memory_bytes
            - _SYSTEM_BYTES
            - _BACKEND_BYTES
            - self._engines * _ENGINE_BYTES
            - self._leak(now)
        )
        thin = _THIN_RATIO * host.memory_bytes
        self._free, self._swapped = max(free, 0.25 * thin), max(thin - free, 0.0)
        self._swapping = min(self._swapped / thin, 1.0)
        dying = self._swapped > _SWAP_BYTES + thin
        self._kills += dying and not self._dying
        self._dying = dying
        self.burden = Burden(
            stretch=(1.0 + _FAR_RATIO * self._far(now)) / quota,
            step_seconds=_STARVED_STEP_SECONDS * self._starved + _SWAPPING_STEP_SECONDS * self._swapping,
            front_factor=(1.0 + _STARVED_FRONT_FACTOR * self._starved)
            * (1.0 + _SWAPPING_FRONT_FACTOR * self._swapping)
            / quota,
        )

    def tick(self, now: float, seconds: float, need: float) -> None:
        """The last ``seconds``, in which the engines needed ``need`` CPUs."""
        self._judge(now, need)
        self._faults += seconds * _FAULTS_PER_SECOND * self._swapping
        self._send(now, seconds * 150.0)  # what else is said on the network
        self._drops += integrate(self._drop_rate, now - seconds, now)
        self._errors += integrate(self._error_rate, now - seconds, now)

    def engine_leak_bytes(self, now: float) -> float:
        """What its engine process holds beyond its usual."""
        return self._leak(now) if self._host.leaking == "engine" else 0.0

    def _send(self, now: float, segments: float) -> None:
        self._segments += segments
        self._retransmits += segments * self._retransmit(now)

    def crossing_seconds(self, now: float, segments: float) -> float:
        """How long a message of ``segments`` takes over this host's network: lost ones come again later."""
        self._send(now, segments)
        ratio = min(self._retransmit(now), 0.9)
        # Of a long answer only what is lost near its end makes the whole of it late.
        lost = 1.0 - (1.0 - ratio) ** min(segments, 8.0)
        late = 0.0
        while self._rng.random() < lost:
            late += _RETRANSMIT_SECONDS * 2.0 ** (late > 0.0)
            lost = ratio
        return self._network(now) + late

    def scrape(self, now: float) -> None:
        """Write what a scrape finds now, in the order of ``_ROWS``."""
        host, demand = self._host, self._demand
        pressure = min(0.9 * self._starved + max(demand - 0.8, 0.0), 1.0)
        backend = _BACKEND_BYTES + (self._leak(now) if host.leaking == "backend" else 0.0)
        self._rows.append((
            min(demand, 1.0), self._throttled, host.cpus * demand * (1.0 + 0.3 * (demand > 1.0)), pressure,
            self._free, self._swapped, self._faults, self._kills, backend, self._far(now), self._retransmits,
            self._segments, self._drops, self._errors, float(sum(down <= now for down in self._downs)),
        ))  # fmt: skip

    def observed(self) -> Node:
        """The rows as arrays."""
        rows = np.array(self._rows, dtype=np.float64)
        return Node(self.name, {name: rows[:, at] for at, name in enumerate(_ROWS)})
