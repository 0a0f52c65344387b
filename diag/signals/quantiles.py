"""Quantiles of classic histograms as Prometheus 2.42 computes them, for all grid times at once.

Source of the rules: ``bucketQuantile`` in Prometheus' promql/quantile.go, 2.42: linear inside a
bucket, zero as the lower bound of a first bucket with a positive bound, counts made monotonic, no
answer without a ``+Inf`` bucket, with fewer than two buckets, or without observations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["bucket_quantile"]

Floats = NDArray[np.float64]


def bucket_quantile(q: float, bounds: Floats, counts: Floats, present: NDArray[np.bool_]) -> Floats:
    """Return the ``q``-quantile (0 … 1) at each time, shape (times,), NaN where there is none.

    ``bounds``: upper bounds, ascending and distinct, shape (buckets,). ``counts``: cumulative,
    shape (buckets, times). ``present``: same shape, False where a bucket has no value at a time;
    a bucket that is absent at a time does not exist then.
    """
    result = np.full(counts.shape[1], np.nan)
    if len(bounds) < 2 or not np.isposinf(bounds[-1]):
        return result
    filled = np.where(present, counts, -1.0)
    monotonic = np.fmax.accumulate(filled, axis=0)
    usable = present[-1] & (present.sum(axis=0) >= 2) & (monotonic[-1] > 0)
    if not usable.any():
        return result
    result[usable] = _interpolate(q, bounds, monotonic[:, usable], present[:, usable])
    return result


def _interpolate(q: float, bounds: Floats, counts: Floats, present: NDArray[np.bool_]) -> Floats:
    columns = np.arange(counts.shape[1])
    rank = q * counts[-1]
    # An absent bucket repeats the count below it (or -1), so it is never the first to reach the rank.
    reached = counts[:-1] >= rank
    hit = np.where(reached.any(axis=0), reached.argmax(axis=0), len(bounds) - 1)
    # Bound and count of the last bucket that exists below the hit; -inf where the hit is the first.
    below_bound = _below(np.where(present, bounds[:, np.newaxis], -np.inf), -np.inf)[hit, columns]
    below_count = _below(counts, 0.0)[hit, columns]
    first = np.isneginf(below_bound)
    start = np.where(first, 0.0, below_bound)
    below = np.where(first, 0.0, below_count)
    end = bounds[hit]
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = start + (end - start) * ((rank - below) / (counts[hit, columns] - below))
    answer = np.where(hit == len(bounds) - 1, below_bound, inside)
    return np.asarray(np.where(first & (end <= 0), end, answer), dtype=np.float64)


def _below(rows: Floats, before_first: float) -> Floats:
    running = np.maximum.accumulate(rows, axis=0)
    return np.vstack((np.full((1, rows.shape[1]), before_first), running[:-1]))
