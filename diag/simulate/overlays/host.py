"""Host overlay: a chat backend that leaks until its node pages, while the engine stays as fast as it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diag.model import Floats
from diag.signals.frame import RawSeries
from diag.simulate.parts import Bundle, Record

__all__ = ["host_leak"]

_NODE = "node-0:9100"
_BACKEND = "chat-backend-0:8080"
_START_BYTES = 0.9e9
_SWAP_BYTES = 8.0 * 2**30
_SWAP_FULL_RATIO = 0.9  # then the backend's own paging holds its growth up
_TIGHT_RATIO = 0.06  # below this share of available memory the kernel starts to reclaim in earnest
_FAULTS_PER_SECOND = 420.0
_DELAY_SECONDS = 2.4  # what paging adds to a request when memory is all gone


def host_leak(bundle: Bundle, *, onset: float, seed: int = 5) -> Bundle:
    """``chat-backend`` grows from the start; from ``onset`` its node pages and clients wait.

    The growth rate is chosen so that available memory falls below 6 % at ``onset``. The engine's own
    metrics are untouched: the added time is the client's, before the engine sees the request.
    """
    rng = np.random.default_rng(seed)
    memory = next(bundle.series("node_memory_MemAvailable_bytes"))
    total = float(next(bundle.series("node_memory_MemTotal_bytes")).values[0])
    times, start = memory.times, bundle.window.start
    room = np.interp(onset, times, memory.values) - _TIGHT_RATIO * total
    floor = 0.015 * total
    most = float(memory.values.min()) - floor + _SWAP_FULL_RATIO * _SWAP_BYTES
    leaked = np.minimum(room * np.clip(times - start, 0.0, None) / (onset - start), most)
    swapped = np.clip(leaked - memory.values + floor, 0.0, None)
    available = memory.values - leaked + swapped
    pain = np.clip(1.0 - available / (_TIGHT_RATIO * total), 0.0, 1.0)
    node = _node_pages(bundle, times, available, swapped, pain, rng)
    resident = _START_BYTES + leaked - swapped
    made = replace(bundle, requests=tuple(_delayed(row, times, pain, rng) for row in bundle.requests))
    return _labelled(made.with_metrics(**node, backend_simulated=_backend_pages(times, resident)), onset)


def _labelled(bundle: Bundle, onset: float) -> Bundle:
    label = {
        "causes": ["host_memory_leak"],
        "leading": "host_memory_leak",
        "accept": ["host_memory_leak"],
        "must_not": [],
        "scope": {"instance": [_BACKEND], "node": [_NODE]},
        "onset": onset,
        "kind": "simulated",
    }
    return bundle.with_meta(label=label).with_note(
        "a made-up chat backend leaks memory on node-0; its resident memory, the node's memory, swap, "
        f"faults and pressure, and the clients' added wait from {onset:.0f} on are made by a generator; the "
        "engine's metrics are the recording's."
    )


def _node_pages(
    bundle: Bundle, times: Floats, available: Floats, swapped: Floats, pain: Floats, rng: np.random.Generator
) -> dict[str, list[RawSeries]]:
    """The recording's node file with its memory rewritten, and what paging adds beside it."""
    spans = np.diff(times, prepend=times[0])
    faults = np.cumsum(rng.poisson(_FAULTS_PER_SECOND * pain * spans))
    stalled = np.clip(0.55 * pain + rng.normal(0.0, 0.02, times.size), 0.0, 1.0) * (pain > 0)
    waiting = np.cumsum(stalled * spans)
    added: dict[str, Floats] = {
        "node_vmstat_pgmajfault": faults.astype(np.float64),
        "node_pressure_memory_waiting_seconds_total": waiting,
        "node_pressure_memory_stalled_seconds_total": 0.6 * waiting,
        "node_pressure_io_waiting_seconds_total": 0.8 * waiting,
    }
    replaced = {
        "node_memory_MemAvailable_bytes": np.rint(available),
        "node_memory_SwapFree_bytes": np.rint(_SWAP_BYTES - swapped),
    }
    groups: dict[str, list[RawSeries]] = {}
    for stem, group in bundle.metrics.items():
        for item in group:
            name = item.labels["__name__"]
            values = replaced.get(name, item.values + added[name] if name in added else item.values)
            groups.setdefault(stem, []).append(RawSeries(item.labels, item.times, values))
    labels = {"instance": _NODE, "job": "node"}
    new = {
        "node_memory_SwapTotal_bytes": np.full_like(times, _SWAP_BYTES),
        "node_vmstat_pswpout": np.rint(swapped / 4096.0),
        "node_vmstat_pswpin": np.rint(0.7 * faults),
    }
    made = [RawSeries({"__name__": name, **labels}, times, row) for name, row in new.items()]
    return {**groups, "swap_simulated": made}


def _backend_pages(times: Floats, resident: Floats) -> list[RawSeries]:
    labels = {"instance": _BACKEND, "job": "chat-backend", "node": _NODE.partition(":")[0]}
    begun = float(times[0]) - 6 * 3600.0
    rows = {
        "process_resident_memory_bytes": np.rint(resident),
        "process_start_time_seconds": np.full_like(times, begun),
        "process_cpu_seconds_total": np.round(0.12 * (times - begun), 2),
        "up": np.ones_like(times),
    }
    return [RawSeries({"__name__": name, **labels}, times, row) for name, row in rows.items()]


def _delayed(row: Record, times: Floats, pain: Floats, rng: np.random.Generator) -> Record:
    share = float(np.interp(float(row["ts"]), times, pain))
    wait = share * _DELAY_SECONDS * float(rng.uniform(0.6, 1.4))
    names = [name for name in ("ttft_seconds", "duration_seconds") if row.get(name) is not None]
    return {**row, **{name: round(float(row[name]) + wait, 4) for name in names}}
