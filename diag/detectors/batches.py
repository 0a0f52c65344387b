"""The time between tokens as a function of how many requests decode together.

More requests in a batch cost a little each: a straight line. A step in it is a size at which the engine
changes the way it runs; a curve that lies higher as a whole is a slower machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.silence import same_instance
from diag.detectors.view import View
from diag.model import Floats, Series

__all__ = ["BLUR", "Batches", "batches_of", "equal_ratio", "pace_since"]

BLUR = 0.2
"""Of a size: a gauge averaged over a look-back blurs which side of it the batch was on."""

_FEWEST = 6  # points on either side of a size
_OCTAVE_POINTS = 3
_LEAST_SIZE = 8.0  # no engine captures less by itself; small batches are where prefill weighs most
_CANDIDATES = 24
_PREFILLS = ("computed_prompt_tokens_per_second", "prompt_tokens_per_second")


@dataclass(frozen=True, slots=True)
class Batches:
    """``size``: requests above which steps are longer (given, or where the step is clearest). ``jump``: the
    time between tokens above it over what batch and prefill alone make of it; ``error``: its standard error;
    both NaN where one side has too few points. ``below``/``above``: medians in seconds on either side.
    ``beyond_before``/``beyond``: share of the baseline's and of the incident's points above it."""

    instance: str
    size: float
    jump: float
    error: float
    below: float
    above: float
    beyond_before: float
    beyond: float

    @property
    def stands_out(self) -> float:
        """The jump in standard errors; 0 where it is not known."""
        return (self.jump - 1.0) / self.error if np.isfinite(self.jump) and self.error > 0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    times: Floats
    running: Floats
    prefill: Floats
    seconds: Floats


def batches_of(view: View, instance: str, size: float | None = None) -> Batches | None:
    """Look for the step at ``size``, or for the size with the clearest one; None without both signals or,
    without a ``size``, when batches differ too little to tell."""
    points = _points(view, instance)
    if points is None:
        return None
    if size is not None:
        return _at(view, instance, size, points)
    large = points.running[points.running >= _LEAST_SIZE]
    if not len(large):
        return None
    sizes = np.unique(np.round(np.quantile(large, np.linspace(0.1, 0.9, _CANDIDATES))))
    told = [t for s in sizes if np.isfinite((t := _at(view, instance, float(s), points)).jump)]
    return max(told, key=lambda t: t.stands_out, default=None)


def _points(view: View, instance: str) -> _Points | None:
    names = ("inter_token_seconds_mean", "running_requests")
    between, running = (same_instance(view.case, n, instance) for n in names)
    if between is None or running is None:
        return None
    keep = (between.times >= view.spans.baseline.start) & (between.times <= view.spans.incident.end)
    keep &= np.isfinite(between.values) & np.isfinite(running.values)
    keep &= (running.values > 0.5) & (between.values > 0)
    known = (same_instance(view.case, n, instance) for n in _PREFILLS)
    prefill = next((s.values for s in known if s is not None), np.zeros_like(between.values))
    keep &= np.isfinite(prefill)
    if not keep.any():
        return None
    return _Points(between.times[keep], running.values[keep], prefill[keep], between.values[keep])


def _at(view: View, instance: str, size: float, points: _Points) -> Batches:
    """Least squares of seconds on batch and prefill rate, and on being above ``size``."""
    running, seconds = points.running, points.seconds
    beyond = running > size
    quiet = points.times <= view.spans.baseline.end
    bad = points.times >= view.spans.incident.start
    jump, error = float("nan"), float("nan")
    if min(beyond.sum(), (~beyond).sum()) >= _FEWEST:
        above = 1.0 / (1.0 + np.exp(-np.clip((running - size) / (BLUR * size / 4), -30.0, 30.0)))
        causes = np.column_stack([running, points.prefill, above])
        jump, error = _step(causes, seconds, beyond, view.spans.overlap_points)
    return Batches(
        instance, size, jump, error, _median(seconds[~beyond]), _median(seconds[beyond]),
        float(beyond[quiet].mean()) if quiet.any() else 0.0, float(beyond[bad].mean()) if bad.any() else 0.0,
    )  # fmt: skip


def pace_since(view: View, instance: str, time: float) -> tuple[float, float] | None:
    """How many times longer tokens take from ``time`` on than batch and prefill alone make of it, and the
    standard error of that; None where too few points lie on either side."""
    points = _points(view, instance)
    if points is None:
        return None
    after = points.times >= time + view.spans.look_back_seconds
    clear = after | (points.times < time)
    if min(after.sum(), (clear & ~after).sum()) < _FEWEST:
        return None
    causes = np.column_stack([points.running, points.prefill, after.astype(np.float64)])[clear]
    found = _step(causes, points.seconds[clear], after[clear], view.spans.overlap_points)
    return found if np.isfinite(found[0]) else None


def _step(causes: Floats, seconds: Floats, beyond: np.ndarray, overlap: int) -> tuple[float, float]:
    """The last cause's effect as a ratio, and its error; neither batch nor prefill makes a step shorter."""
    kept = [i for i in range(causes.shape[1]) if np.ptp(causes[:, i]) > 0]
    last = causes.shape[1] - 1
    while True:
        design = np.column_stack([np.ones(len(seconds)), causes[:, kept]])
        found = np.linalg.lstsq(design, seconds, rcond=None)[0]
        falling = [i for i, slope in zip(kept, found[1:], strict=True) if slope < 0 and i != last]
        if not falling:
            break
        kept = [i for i in kept if i not in falling]
    if last not in kept:
        return float("nan"), float("nan")
    rest = seconds - design @ found
    # Neighbouring points share their look-back.
    spread = overlap * float(rest @ rest) / max(len(seconds) - len(found), 1)
    covariance = spread * np.linalg.pinv(design.T @ design)
    alone = float(np.mean((design @ found)[beyond]) - found[-1] * np.mean(causes[beyond, last]))
    if alone <= 0:
        return float("nan"), float("nan")
    return 1.0 + float(found[-1]) / alone, float(np.sqrt(covariance[-1, -1])) / alone


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
