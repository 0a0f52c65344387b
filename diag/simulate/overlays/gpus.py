"""GPU overlays: a calm card beside an incident of another cause, and three ways of being the cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from diag.model import Floats, Window
from diag.simulate.gpu import H200, Drive, Trace, run
from diag.simulate.gpu_pages import Process, dcgm_pages, nvidia_gpu_exporter_pages
from diag.simulate.parts import Bundle
from diag.simulate.stretch import slow_down

__all__ = ["gpu_calm", "gpu_neighbour", "gpu_power_brake", "gpu_thermal"]

_NODE = "node-0"
_ENGINE_MEMORY_BYTES = 0.8 * H200.memory_bytes  # vLLM takes its share at start and keeps it
_RESTING_MEMORY_BYTES = 530e6  # a CUDA context and little else
_BUSY_MEMORY_BYTES = 18e9
# A warm aisle: at full load the card then settles near 60 °C.
_AIR_CELSIUS = 36.0
_BLOCKED_RESISTANCE = 6.0  # what holds the clock near 60 % of its maximum under full load
_BRAKE_CLOCK_MHZ = 990.0
_SHARED_FACTOR = 2.2  # two busy processes take turns, and switching costs


def gpu_calm(bundle: Bundle, *, seed: int = 1, resident: bool = False) -> Bundle:
    """A healthy card under the recording's own load, and a batch job whose hours are its own.

    The job runs 30-40 s and rests 25-50 s from the first sample on, whatever the requests do; nothing
    in the recording is changed. ``resident``: between runs its process stays with a bare CUDA context,
    else each run is a process of its own.
    """
    rng = np.random.default_rng(seed)
    times = _times(bundle)
    busy = _spells(times, float(times[0]) + 6.0, (30.0, 40.0), (25.0, 50.0), rng)
    trace = run(H200, _drive(times, np.maximum(_load(bundle, times), 0.9 * busy)), rng)
    memory = np.where(busy > 0, _BUSY_MEMORY_BYTES, _RESTING_MEMORY_BYTES)
    job = Process(41877, "nightly_embeddings", memory)
    jobs = (job,) if resident else _workers(busy, 41877, "nightly_embeddings")
    label = {**bundle.label, "kind": "simulated"}
    label["must_not"] = ["noisy_neighbour", "power_cap", "thermal_throttle"]
    made = _with_gpu(bundle, trace, jobs).with_meta(label=label)
    return made.with_note(
        "all GPU series (one H200 with a steady clock, and a batch job on its own schedule) are made by a "
        "generator; everything else is the recording."
    )


def gpu_thermal(bundle: Bundle, *, onset: float, seed: int = 2) -> Bundle:
    """Cooling fails at ``onset``: temperature climbs to the threshold, then the clock sinks to hold it there.

    Serving slows down as the clock does. The label's onset is the first lasting loss of clock, since
    nobody is hit while the card merely gets warm.
    """
    rng = np.random.default_rng(seed)
    times = _times(bundle)
    resistance = 1.0 + (_BLOCKED_RESISTANCE - 1.0) * np.clip((times - onset) / 10.0, 0.0, 1.0)
    trace = run(H200, _drive(times, _load(bundle, times), resistance=resistance), rng)
    hit = float(times[np.flatnonzero(trace.clock_mhz < 0.95 * H200.max_clock_mhz)[0]])
    return _throttled(bundle, trace, "thermal_throttle", hit).with_note(
        f"from {onset:.0f} the cooling of a made-up H200 fails; latencies of the recording are stretched by "
        "the clock it loses."
    )


def gpu_power_brake(bundle: Bundle, *, onset: float, seed: int = 3) -> Bundle:
    """The chassis pulls the power brake at ``onset``: half the clock, less power, and a cooler card."""
    rng = np.random.default_rng(seed)
    times = _times(bundle)
    cap = np.where(times >= onset, _BRAKE_CLOCK_MHZ, H200.max_clock_mhz)
    trace = run(H200, _drive(times, _load(bundle, times), clock_cap_mhz=cap), rng)
    return _throttled(bundle, trace, "power_cap", onset).with_note(
        f"from {onset:.0f} a made-up H200 runs under a hardware power brake; latencies of the recording are "
        "stretched by the clock it loses."
    )


def gpu_neighbour(bundle: Bundle, *, onset: float, seed: int = 4) -> Bundle:
    """Batches of another job begin at ``onset``, one process each; serving is slow in just these spells."""
    rng = np.random.default_rng(seed)
    times = _times(bundle)
    busy = _spells(times, onset, (10.0, 13.0), (13.0, 15.0), rng)
    # Sampled finely, since a request feels the edge of a spell, not the exporter's view of it.
    edges = np.flatnonzero(np.diff(busy)) + 1

    def factor(at: Floats) -> Floats:
        inside = np.searchsorted(times[edges], at, side="right") % 2 == 1
        return np.where(inside, _SHARED_FACTOR, 1.0)

    slowed = slow_down(bundle, factor)
    trace = run(H200, _drive(times, np.maximum(_load(slowed, times), busy)), rng)
    label = _label("noisy_neighbour", onset)
    made = _with_gpu(slowed, trace, _workers(busy, 52210, "finetune_worker")).with_meta(label=label)
    return made.with_note(
        f"from {onset:.0f} made-up batch processes come and go on a made-up H200; latencies of the "
        f"recording are stretched by {_SHARED_FACTOR} in these spells."
    )


def _workers(busy: Floats, first_pid: int, name: str) -> tuple[Process, ...]:
    """One short-lived process for each spell."""
    edges = np.flatnonzero(np.diff(busy, prepend=0.0, append=0.0))
    spells = edges.reshape(-1, 2).tolist()
    index = np.arange(busy.size)
    return tuple(
        Process(
            first_pid + 61 * number,
            name,
            np.where((index >= begin) & (index < end), _BUSY_MEMORY_BYTES, np.nan),
        )
        for number, (begin, end) in enumerate(spells)
    )


def _throttled(bundle: Bundle, trace: Trace, cause: str, onset: float) -> Bundle:
    def factor(at: Floats) -> Floats:
        clock = np.interp(at, trace.times, trace.clock_mhz)
        # A step of jitter is not felt.
        return np.where(clock > H200.max_clock_mhz - 45.0, 1.0, H200.max_clock_mhz / clock)

    return _with_gpu(slow_down(bundle, factor), trace, ()).with_meta(label=_label(cause, onset))


def _label(cause: str, onset: float) -> Mapping[str, Any]:
    return {
        "causes": [cause],
        "leading": cause,
        "accept": [cause],
        "must_not": [],
        "scope": {"gpu": ["0"], "instance": ["vllm-0:8000"]},
        "onset": onset,
        "kind": "simulated",
    }


def _with_gpu(bundle: Bundle, trace: Trace, guests: tuple[Process, ...]) -> Bundle:
    engine = Process(1093, "VLLM::EngineCore", np.full_like(trace.times, _ENGINE_MEMORY_BYTES))
    processes = (engine, *guests)
    pages = dcgm_pages(H200, trace, processes, _NODE)
    pages += nvidia_gpu_exporter_pages(H200, trace, processes, _NODE)
    return bundle.with_metrics(gpu_simulated=pages)


def _times(bundle: Bundle) -> Floats:
    window: Window = bundle.window
    return np.round(np.arange(window.start + 0.7, window.end, float(bundle.meta["step_seconds"])), 3)


def _drive(
    times: Floats,
    utilization: Floats,
    *,
    resistance: Floats | None = None,
    clock_cap_mhz: Floats | None = None,
) -> Drive:
    return Drive(
        times,
        utilization,
        np.ones_like(times) if resistance is None else resistance,
        np.full_like(times, H200.max_clock_mhz) if clock_cap_mhz is None else clock_cap_mhz,
        _AIR_CELSIUS,
    )


def _load(bundle: Bundle, times: Floats) -> Floats:
    """Utilisation that follows the recording: 0 with nothing running, near 1 with a full batch."""
    running = np.zeros_like(times)
    for series in bundle.series("vllm:num_requests_running"):
        running += np.interp(times, series.times, series.values)
    smooth = np.convolve(np.pad(running, 2, mode="edge"), np.full(5, 0.2), mode="valid")
    return np.clip(1.0 - np.exp(-smooth / 5.0), 0.0, 1.0)


def _spells(
    times: Floats, start: float, on: tuple[float, float], off: tuple[float, float], rng: np.random.Generator
) -> Floats:
    """0 or 1 at each time: spells of random length from ``start`` on, begun with a busy one."""
    busy = np.zeros_like(times)
    at = start
    while at < times[-1]:
        end = at + rng.uniform(*on)
        busy[(times >= at) & (times < end)] = 1.0
        at = end + rng.uniform(*off)
    return busy
