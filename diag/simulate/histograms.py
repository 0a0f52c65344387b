"""Classic histograms whose observations are multiplied: counts move between buckets.

A histogram says how many observations fell between two bounds and what all of them add up to, not
where in a bucket they lay. The least presumptuous guess that honours both (maximum entropy) is a
truncated exponential in each bucket with one rate for all, chosen so that the sum comes out. With
the sum ignored, prefill times of 20 ms in a first bucket that ends at 300 ms would turn into 150 ms.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from diag.errors import BundleError
from diag.model import Floats
from diag.signals.frame import RawSeries

__all__ = ["Histogram", "find_histograms", "scaled"]

_SUFFIX = re.compile(r"_(bucket|sum|count)$")
_STEEPEST = 500.0  # exp(-500) is still a float64; steeper tilts put everything on a bound anyway


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """One label set of a classic histogram.

    ``bounds``: ascending, last +Inf, shape (k,). ``counts``: cumulative over bounds and over time,
    shape (k, n). ``sums``: cumulative over time, shape (n,). ``times``: unix seconds, shape (n,).
    ``parts``: the raw series in the order buckets, sum, count.
    """

    bounds: Floats
    times: Floats
    counts: Floats
    sums: Floats
    parts: tuple[RawSeries, ...]


def find_histograms(series: Iterable[RawSeries], families: frozenset[str]) -> list[Histogram]:
    """The histograms of ``families`` (names without suffix), with all three kinds of series.

    Raises:
        BundleError: the series of one histogram were not scraped together.
    """
    groups: dict[tuple[str, ...], list[RawSeries]] = defaultdict(list)
    for item in series:
        family, suffix = _split(item)
        if suffix and family in families:
            rest = (f"{k}={v}" for k, v in sorted(item.labels.items()) if k not in ("__name__", "le"))
            groups[(family, *rest)].append(item)
    return [_assembled(parts) for _, parts in sorted(groups.items()) if _complete(parts)]


def _split(item: RawSeries) -> tuple[str, str]:
    name = item.labels["__name__"]
    found = _SUFFIX.search(name)
    return (name[: found.start()], found[1]) if found else (name, "")


def _complete(parts: list[RawSeries]) -> bool:
    return {_split(part)[1] for part in parts} == {"bucket", "sum", "count"}


def _bound(item: RawSeries) -> float:
    return float(item.labels["le"])


def _assembled(parts: list[RawSeries]) -> Histogram:
    buckets = sorted((part for part in parts if _split(part)[1] == "bucket"), key=_bound)
    total = next(part for part in parts if _split(part)[1] == "sum")
    count = next(part for part in parts if _split(part)[1] == "count")
    if any(not np.array_equal(part.times, count.times) for part in parts):
        name = _split(count)[0]
        raise BundleError(f"the buckets of {name} were not scraped together", hint="use a whole recording")
    return Histogram(
        np.array([_bound(item) for item in buckets]),
        count.times,
        np.stack([item.values for item in buckets]),
        total.values,
        (*buckets, total, count),
    )


def scaled(histogram: Histogram, value_factor: Floats, count_factor: Floats) -> tuple[RawSeries, ...]:
    """``histogram`` with every observation multiplied and the number of observations scaled.

    Both factors have shape (n - 1,): one for each interval between scrapes. The first sample, the
    history before the window, is kept. Counts are rounded after adding up, so nothing drifts.
    """
    increments = _increments(histogram.counts)
    sum_increments = _increments(histogram.sums[np.newaxis, :])[0]
    moved = _rebucketed(histogram.bounds, increments, sum_increments, value_factor) * count_factor
    counts = np.rint(_accumulated(histogram.counts, moved))
    sums = _accumulated(
        histogram.sums[np.newaxis, :], (sum_increments * value_factor * count_factor)[np.newaxis, :]
    )[0]
    rows = [*counts, sums, counts[-1]]
    return tuple(
        RawSeries(part.labels, part.times, row) for part, row in zip(histogram.parts, rows, strict=True)
    )


def _resets(cumulative: Floats) -> NDArray[np.bool_]:
    """Where the last row falls: a restart clears the whole histogram at once. Shape (n - 1,)."""
    falls: NDArray[np.bool_] = np.diff(cumulative[-1]) < 0
    return falls


def _increments(cumulative: Floats) -> Floats:
    return np.where(_resets(cumulative), cumulative[:, 1:], np.diff(cumulative, axis=1))


def _accumulated(original: Floats, increments: Floats) -> Floats:
    running = np.concatenate([original[:, :1], increments], axis=1)
    restarts = [0, *(np.flatnonzero(_resets(original)) + 1), running.shape[1]]
    pieces = [running[:, a:b].cumsum(axis=1) for a, b in pairwise(restarts)]
    return np.concatenate(pieces, axis=1)


def _rebucketed(bounds: Floats, cumulative: Floats, sums: Floats, factor: Floats) -> Floats:
    """Cumulative increments after multiplying every observation by ``factor``; shape as ``cumulative``."""
    lower = np.concatenate([[min(0.0, bounds[0])], bounds[:-1]])
    finite = np.isfinite(bounds)
    width = np.where(finite, bounds - lower, 0.0)
    inside = np.maximum(np.diff(cumulative, axis=0, prepend=0.0), 0.0)
    rate = _tilts(lower, width, inside, sums)
    out = np.empty_like(cumulative)
    for row, bound in enumerate(bounds):
        if not np.isfinite(bound):
            out[row] = cumulative[-1]
            continue
        reached = bound / factor
        # What lies beyond the last finite bound has no upper end: it is taken to stay beyond.
        below = (inside * _share_below(reached, lower, width, rate))[finite].sum(axis=0)
        out[row] = np.where(reached >= bounds[-2], cumulative[-2], below)
    return out


def _tilts(lower: Floats, width: Floats, inside: Floats, sums: Floats) -> Floats:
    """For each interval the rate at which the buckets' means add up to the sum, by bisection."""
    low = np.full(sums.shape, -_STEEPEST / max(width[width > 0].min(), 1e-9))
    high = -low
    for _ in range(80):
        middle = (low + high) / 2.0
        means = lower[:, np.newaxis] + width[:, np.newaxis] * _mean_share(width, middle)
        total = (inside * means).sum(axis=0)
        too_large = total > sums
        low = np.where(too_large, middle, low)
        high = np.where(too_large, high, middle)
    rate: Floats = (low + high) / 2.0
    return rate


def _steepness(width: Floats, rate: Floats) -> Floats:
    return np.clip(width[:, np.newaxis] * rate[np.newaxis, :], -_STEEPEST, _STEEPEST)


def _mean_share(width: Floats, rate: Floats) -> Floats:
    """Where in each bucket (0 … 1) the mean lies; shape (k, n)."""
    z = _steepness(width, rate)
    safe = np.where(np.abs(z) < 1e-6, 1.0, z)
    return np.where(np.abs(z) < 1e-6, 0.5 - z / 12.0, 1.0 / safe - 1.0 / np.expm1(safe))


def _share_below(reached: Floats, lower: Floats, width: Floats, rate: Floats) -> Floats:
    """Share of each bucket's observations at or below ``reached`` (n,); shape (k, n)."""
    safe_width = np.where(width > 0, width, 1.0)[:, np.newaxis]
    x = np.clip((reached[np.newaxis, :] - lower[:, np.newaxis]) / safe_width, 0.0, 1.0)
    z = _steepness(width, rate)
    safe = np.where(np.abs(z) < 1e-6, 1.0, z)
    return np.where(np.abs(z) < 1e-6, x, np.expm1(-safe * x) / np.expm1(-safe))
