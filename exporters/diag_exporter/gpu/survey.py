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

__all__ = ["Guests", "Survey", "Visit"]

_FIRST_LOOK_SECONDS = 2.0  # from the beginning of time, the driver would answer a mean over hours
_FUTURE_SECONDS = 60.0  # samples this far ahead of the clock are from before it was set back


@dataclass(frozen=True, slots=True)
class Guests:
    """Processes on one GPU, and whether the driver tells memory and SM use there at all."""

    uses: tuple[ProcessUse, ...]
    memory_told: bool
    sm_told: bool


@dataclass(frozen=True, slots=True)
class Visit:
    """One pass: guests by GPU uuid, without GPUs that tell of none. ``mismatch``: there are
    processes and none of their pids is one of ours, so they live in another PID namespace."""

    time: float
    guests: Mapping[str, Guests]
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
        """The processes of this pass; all collectors of a pass are called with one ``now``."""
        if self._last is not None and self._last.time == now:
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
        guests = {
            uuid: _guests(one, found, own, gone, mismatch=mismatch)
            for uuid, one in raw.items()
            if one.memory is not None or one.sm is not None
        }
        self._last = Visit(now, guests, mismatch)
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
        now = self._wall()
        since = self._since.get(gpu.uuid)
        # Once the clock was set back, nothing would be later than the last sample for long.
        if since is None or since > (now + _FUTURE_SECONDS) * 1e6:
            since = int((now - _FIRST_LOOK_SECONDS) * 1e6)
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


def _guests(
    raw: _Raw, found: Mapping[int, Process], own: set[int], gone: set[int], *, mismatch: bool
) -> Guests:
    shares = raw.sm
    pids = {*(raw.memory or ()), *(shares or ())}
    if raw.memory is not None and shares:
        # Some drivers list memory by container pid and SM time by host pid: those do not join, and what
        # cannot be joined is nobody's.
        known = shares.keys() & (raw.memory.keys() | found.keys())
        pids = raw.memory.keys() | known
        shares = {pid: shares[pid] for pid in known} if known else None
    uses = []
    for pid in sorted(pids - gone):
        process = found.get(pid)
        owner = "unknown" if mismatch else "own" if pid in own else "foreign"
        # The driver lists only those with some SM use: any other process of the GPU has none.
        sm = None if shares is None else shares.get(pid, 0.0)
        memory = None if raw.memory is None else raw.memory.get(pid, 0.0)
        uses.append(ProcessUse(pid, process.title if process else "unknown", owner, memory, sm))
    return Guests(tuple(uses), raw.memory is not None, shares is not None)
