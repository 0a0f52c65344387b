"""The time between tokens as a function of how many requests decode together.

More requests in a batch cost a little each: a straight line. A step in it is a size at which the engine
changes the way it runs; a curve that lies higher as a whole is a slower machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.standstill import same_instance
from diag.detectors.view import View
from diag.model import Floats, Series

__all__ = ["Batches", "batches_of", "equal_ratio"]

_FEWEST = 6  # points on either side of a size
_OCTAVE_POINTS = 3
_LEAST_SIZE = 8.0  # no engine captures less by itself; small batches are where prefill weighs most


@dataclass(frozen=True, slots=True)
class Batches:
    """``size``: requests above which steps are longer (given, or where the step is largest); ``jump``:
    median time between tokens above it over what the line through the points below it foretells;
    ``below``/``above``: medians in seconds of points within an octave of it; ``beyond_before``/``beyond``:
    share of the baseline's and of the incident's points above it. ``jump`` is NaN where one side has too
    few points."""

    instance: str
    size: float
    jump: float
    below: float
    above: float
    beyond_before: float
    beyond: float


def batches_of(view: View, instance: str, size: float | None = None) -> Batches | None:
    """Look for the step at ``size``, or for the size with the clearest one; None without both signals or,
    without a ``size``, when batches differ too little to tell."""
    pair = _points(view, instance)
    if pair is None:
        return None
    times, running, seconds = pair
    if size is not None:
        return _at(view, instance, size, times, running, seconds)
    sizes = np.unique(np.round(running[running >= _LEAST_SIZE]))
    tried = [_at(view, instance, float(s), times, running, seconds) for s in _spread(sizes)]
    told = [t for t in tried if np.isfinite(t.jump)]
    return max(told, key=lambda t: t.jump, default=None)


def _spread(sizes: Floats) -> Floats:
    """At most forty candidates."""
    if len(sizes) <= 40:
        return sizes
    spread: Floats = sizes[np.linspace(0, len(sizes) - 1, 40).astype(np.intp)]
    return spread


def _points(view: View, instance: str) -> tuple[Floats, Floats, Floats] | None:
    between, running = (
        same_instance(view.case, n, instance) for n in ("inter_token_seconds_mean", "running_requests")
    )
    if between is None or running is None:
        return None
    start, end = view.spans.baseline.start, view.spans.incident.end
    keep = (between.times >= start) & (between.times <= end)
    keep &= np.isfinite(between.values) & np.isfinite(running.values)
    keep &= (running.values > 0.5) & (between.values > 0)
    return (between.times[keep], running.values[keep], between.values[keep]) if keep.any() else None


def _at(view: View, instance: str, size: float, times: Floats, running: Floats, seconds: Floats) -> Batches:
    beyond = running > size
    quiet, bad = times <= view.spans.baseline.end, times >= view.spans.incident.start
    low, high = ~beyond & (running > size / 2), beyond & (running <= 2 * size)
    jump = float("nan")
    if low.sum() >= _FEWEST and high.sum() >= _FEWEST:
        foretold = _line(running[~beyond], seconds[~beyond], running[high])
        jump = float(np.median(seconds[high]) / max(float(np.median(foretold)), 1e-9))
    return Batches(
        instance, size, jump, _median(seconds[low]), _median(seconds[high]),
        float(beyond[quiet].mean()) if quiet.any() else 0.0, float(beyond[bad].mean()) if bad.any() else 0.0,
    )  # fmt: skip


def _line(x: Floats, y: Floats, at: Floats) -> Floats:
    """Least squares, never falling: more requests make no step shorter."""
    spread = float(np.var(x))
    slope = float(np.mean((x - x.mean()) * (y - y.mean()))) / spread if spread > 0 else 0.0
    line: Floats = y.mean() + max(slope, 0.0) * (at - x.mean())
    return line


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def equal_ratio(
    view: View, instance: str, signal: str, load: str = "running_requests", *, most: float = float("inf")
) -> float | None:
    """How many times longer ``signal`` is in the incident than before at equal ``load`` (no more than
    ``most``): geometric mean over half-octaves that both hold; None when there are none."""
    value, dose = (same_instance(view.case, n, instance) for n in (signal, load))
    if value is None or dose is None:
        return None
    known = np.isfinite(value.values) & np.isfinite(dose.values) & (value.values > 0) & (dose.values <= most)
    octave = np.floor(2 * np.log2(np.maximum(dose.values, 1.0)))
    quiet, bad = known & _in(value, view, "baseline"), known & _in(value, view, "incident")
    logs, weights = [], []
    for o in np.unique(octave[known]):
        a, b = value.values[quiet & (octave == o)], value.values[bad & (octave == o)]
        if len(a) >= _OCTAVE_POINTS and len(b) >= _OCTAVE_POINTS:
            logs.append(float(np.log(np.median(b) / np.median(a))))
            weights.append(min(len(a), len(b)))
    return float(np.exp(np.average(logs, weights=weights))) if logs else None


def _in(series: Series, view: View, which: str) -> np.ndarray:
    window = view.spans.baseline if which == "baseline" else view.spans.settled
    inside: np.ndarray = (series.times >= window.start) & (series.times <= window.end)
    return inside
