"""Who is on which GPU: one look per pass, shared by the collectors that need it.

Listing processes is the dearest call there is (4.5 ms on one laptop, under a lock that serving needs
too), so it is made once per slow pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from diag_exporter.gpu.fleet import Fleet, Gpu
from diag_exporter.gpu.host import Host, Process
from diag_exporter.gpu.options import GpuOptions
from diag_exporter.gpu.owners import Owners
from diag_exporter.gpu.readings import ProcessUse

__all__ = ["Survey", "Visit"]

_SHARED_SECONDS = 5.0
_FIRST_LOOK_SECONDS = 2.0  # from the beginning of time, the driver would answer a mean over hours


@dataclass(frozen=True, slots=True)
class Visit:
    """One pass: processes by GPU uuid; None where the GPU does not tell. ``mismatch``: there are
    processes and none of their pids is one of ours, so they live in another PID namespace."""

    time: float
    processes: Mapping[str, tuple[ProcessUse, ...] | None]
    mismatch: bool


@dataclass(frozen=True, slots=True)
class _Raw:
    """As the driver tells: bytes (None: N/A) by pid, SM ratio by pid; None: unsupported."""

    memory: Mapping[int, float | None] | None
    sm: Mapping[int, float] | None


class Survey:
    """Lists processes of all GPUs, finds out what they are and whose."""

    def __init__(
        self, fleet: Fleet, host: Host, options: GpuOptions, wall: Callable[[], float] = time.time
    ) -> None:
        self._fleet = fleet
        self._host = host
        self._owners = Owners(options.own)
        self._graphics = options.profile == "full"
        self._wall = wall
        self._since: dict[str, int] = {}  # µs of the last sample seen, by uuid
        self._absent: set[int] = set()  # pids that were not in /proc in the pass before
        self._last: Visit | None = None

    def look(self, now: float) -> Visit:
        """The processes of this pass."""
        if self._last is not None and 0 <= now - self._last.time < _SHARED_SECONDS:
            return self._last
        raw = {gpu.uuid: one for gpu, one in self._fleet.read(now, self._list)}
        pids = {pid for one in raw.values() for pid in (*(one.memory or ()), *(one.sm or ()))}
        found = {pid: one for pid in pids if (one := self._host.process(pid)) is not None}
        mismatch = bool(pids) and not found
        own = self._owners.own(found, self._host.process)
        # A pid we cannot see is dead and leaves the list soon; one that stays lives out of our sight.
        hidden = pids - found.keys()
        gone = set() if mismatch else hidden - self._absent
        self._absent = hidden
        processes = {uuid: _uses(one, found, own, gone, mismatch=mismatch) for uuid, one in raw.items()}
        self._last = Visit(now, processes, mismatch)
        return self._last

    def _list(self, gpu: Gpu) -> _Raw:
        compute = gpu.ask("nvmlDeviceGetComputeRunningProcesses")
        lists = [compute, gpu.ask("nvmlDeviceGetMPSComputeRunningProcesses")]
        if self._graphics:
            lists.append(gpu.ask("nvmlDeviceGetGraphicsRunningProcesses"))
        memory: dict[int, float | None] = {}
        for one in (entry for entries in lists for entry in entries or ()):
            # A process can stand in two lists with the same memory; MIG lists it once per instance.
            used = None if one.usedGpuMemory is None else float(one.usedGpuMemory)
            before = memory.get(int(one.pid))
            memory[int(one.pid)] = used if before is None else max(before, used or 0.0)
        return _Raw(None if compute is None else memory, self._utilization(gpu))

    def _utilization(self, gpu: Gpu) -> dict[int, float] | None:
        since = self._since.get(gpu.uuid)
        if since is None:
            since = int((self._wall() - _FIRST_LOOK_SECONDS) * 1e6)
        samples = gpu.attempt(("sm",), gpu.library.process_utilization, gpu.handle, since)
        if samples is None:
            return None
        self._since[gpu.uuid] = max((when for _, when, _ in samples), default=since)
        shares: dict[int, list[int]] = {}
        for pid, when, percent in samples:
            # Entries of unused slots have no time; more than all of it is no share.
            if when > since and percent <= 100:
                shares.setdefault(pid, []).append(percent)
        return {pid: sum(parts) / len(parts) / 100 for pid, parts in shares.items()}


def _uses(
    raw: _Raw, found: Mapping[int, Process], own: set[int], gone: set[int], *, mismatch: bool
) -> tuple[ProcessUse, ...] | None:
    if raw.memory is None and raw.sm is None:
        return None
    uses = []
    for pid in sorted({*(raw.memory or ()), *(raw.sm or ())} - gone):
        process = found.get(pid)
        owner = "unknown" if mismatch else "own" if pid in own else "foreign"
        # The driver lists only those with some SM use: any other process of the GPU has none.
        sm = None if raw.sm is None else raw.sm.get(pid, 0.0)
        memory = None if raw.memory is None else raw.memory.get(pid, 0.0)
        uses.append(ProcessUse(pid, process.title if process else "unknown", owner, memory, sm))
    return tuple(uses)
