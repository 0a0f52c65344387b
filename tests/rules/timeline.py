"""Turn an incident of minutes into hours, so that alerts with hours in them can be judged on it.

The recordings last three to five minutes and the simulated incidents an hour, the last third of it in
trouble; alerts wait five minutes to an hour, and some compare with an hour ago. ``stretched`` repeats what
there is instead of inventing anything: the calm before the onset over and over, the onset and what follows
once, its second half over and over, then the calm again. Counters go on counting across the seams; a reset
stays a reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from diag.model import Floats
from diag.signals.frame import RawSeries
from diag.simulate import Bundle

__all__ = ["SCRAPE_SECONDS", "Timeline", "moved", "openmetrics", "stretched"]

SCRAPE_SECONDS = 30.0
_STALE_SECONDS = 12.0
_COUNTING = ("_total", "_count", "_sum", "_bucket")


@dataclass(frozen=True, slots=True)
class Timeline:
    """Series on a common clock. ``onset`` and ``over`` bound the trouble (unix seconds), None without any."""

    name: str
    start: float
    end: float
    onset: float | None
    over: float | None
    series: tuple[RawSeries, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """For every scrape: when it takes place in the recording, and in which pass over it."""

    source: Floats
    passes: Floats


def stretched(
    bundle: Bundle,
    start: float,
    names: frozenset[str],
    *,
    calm: float = 7200,
    hurt: float = 5400,
    after: float = 3600,
) -> Timeline:
    """The incident from ``start`` on: seconds of calm, of trouble, of calm again. ``names``: the metrics
    that are kept. A healthy recording is repeated whole."""
    window = bundle.window
    onset = bundle.label.get("onset")
    if onset is None:
        plan = _plan([(window.start, window.end, calm + hurt + after)])
    else:
        tail = (onset + window.end) / 2
        plan = _plan(
            [
                (window.start, onset, calm),
                (onset, tail, tail - onset),
                (tail, window.end, hurt - (tail - onset)),
                (window.start, onset, after),
            ]
        )
    times: Floats = start + np.arange(plan.source.size, dtype=np.float64) * SCRAPE_SECONDS
    stale = max(_STALE_SECONDS, 1.6 * float(bundle.meta["step_seconds"]))
    chosen = (one for one in bundle.series() if one.labels["__name__"] in names)
    series = [_along(one, plan, times, stale) for one in chosen]
    kept = tuple(one for one in series if one.times.size)
    begun, over = (None, None) if onset is None else (start + calm, start + calm + hurt)
    return Timeline(bundle.name, start, float(times[-1]), begun, over, kept)


def moved(bundle: Bundle, start: float, names: frozenset[str]) -> Timeline:
    """A simulated incident as it is, from ``start`` on; its trouble lasts to its end."""
    shift = start - bundle.window.start
    series = tuple(
        RawSeries(one.labels, one.times + shift, one.values)
        for one in bundle.series()
        if one.labels["__name__"] in names and one.times.size
    )
    onset = bundle.label.get("onset")
    end = bundle.window.end + shift
    return Timeline(bundle.name, start, end, onset and onset + shift, onset and end, series)


def openmetrics(series: Iterable[RawSeries]) -> Iterator[str]:
    """The lines that promtool makes blocks of."""
    for one in series:
        labels = ",".join(
            f'{name}="{_escaped(value)}"' for name, value in one.labels.items() if name != "__name__"
        )
        head = f"{one.labels['__name__']}{{{labels}}}"
        for moment, value in zip(one.times.tolist(), one.values.tolist(), strict=True):
            if value == value:
                yield f"{head} {value!r} {moment:.3f}\n"
    yield "# EOF\n"


def _plan(pieces: list[tuple[float, float, float]]) -> _Plan:
    source: list[float] = []
    passes: list[float] = []
    clock, made, number = 0.0, 0.0, 0
    for begin, end, seconds in pieces:
        made += max(seconds, 0.0)
        while clock < made:
            length = min(end - begin, made - clock)
            here = len(source) * SCRAPE_SECONDS - clock
            while here < length:
                source.append(begin + here)
                passes.append(number)
                here += SCRAPE_SECONDS
            clock += length
            number += 1
    return _Plan(np.array(source), np.array(passes))


def _along(one: RawSeries, plan: _Plan, times: Floats, stale: float) -> RawSeries:
    values = _sampled(one, plan.source, stale)
    if one.labels["__name__"].endswith(_COUNTING):
        values = _counted(values, plan.passes)
    there = ~np.isnan(values)
    return RawSeries(one.labels, times[there], values[there])


def _sampled(one: RawSeries, moments: Floats, stale: float) -> Floats:
    """The newest sample at each moment, NaN where there is none of late."""
    if not one.times.size:
        return np.full(moments.shape, np.nan)
    at = np.searchsorted(one.times, moments, side="right") - 1
    fresh = (at >= 0) & (moments - one.times[np.maximum(at, 0)] <= stale)
    return np.where(fresh, one.values[np.maximum(at, 0)], np.nan)


def _counted(values: Floats, passes: Floats) -> Floats:
    """A counter that goes on over the seams, by what it grew a scrape in the pass that follows."""
    result = values.copy()
    total, growth = np.nan, 0.0
    for i in range(values.size):
        if np.isnan(values[i]):
            continue
        if np.isnan(total):
            total = values[i]
        elif passes[i] != passes[i - 1] or np.isnan(values[i - 1]):
            total += growth
        elif values[i] < values[i - 1]:
            total = values[i]
        else:
            growth = values[i] - values[i - 1]
            total += growth
        result[i] = total
    return result


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
