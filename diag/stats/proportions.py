"""Shares and their uncertainty: intervals, paired comparison, calibration error.

Sources: Wilson, JASA 22 (1927) 209; McNemar, Psychometrika 12 (1947) 153, the exact (binomial) form;
Guo et al., On calibration of modern neural networks, ICML 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Share", "calibration_error", "mcnemar", "paired_gain", "wilson"]

Floats = NDArray[np.float64]

_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Share:
    """``hits`` of ``count`` with the 95 % Wilson interval; all NaN when there was nothing to count."""

    hits: float
    count: int
    value: float
    low: float
    high: float


def wilson(hits: float, count: int) -> Share:
    """The share ``hits``/``count`` and its interval. ``hits`` may be a sum of scores between 0 and 1."""
    if count == 0:
        return Share(hits, 0, math.nan, math.nan, math.nan)
    p = hits / count
    z2 = _Z * _Z
    centre = (p + z2 / (2 * count)) / (1 + z2 / count)
    half = _Z / (1 + z2 / count) * math.sqrt(p * (1 - p) / count + z2 / (4 * count * count))
    return Share(hits, count, p, max(0.0, centre - half), min(1.0, centre + half))


def mcnemar(a: Floats, b: Floats) -> tuple[int, int, float]:
    """Cases that only ``a`` got right, that only ``b`` did, and the exact two-sided p-value; 0/1 arrays."""
    only_a, only_b = int(((a > 0) & (b <= 0)).sum()), int(((b > 0) & (a <= 0)).sum())
    n, k = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 0, 0, 1.0
    logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(k + 1)]
    tail = sum(math.exp(value - n * math.log(2)) for value in logs)
    return only_a, only_b, min(1.0, 2 * tail)


def paired_gain(a: Floats, b: Floats, draws: int = 2000) -> tuple[float, float, float]:
    """Mean of ``a`` − ``b`` over the same cases and its 95 % bootstrap interval (cases drawn, fixed seed)."""
    difference = a - b
    if not len(difference):
        return math.nan, math.nan, math.nan
    rng = np.random.default_rng(20_260)
    picks = rng.integers(0, len(difference), size=(draws, len(difference)))
    means = difference[picks].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(difference.mean()), float(low), float(high)


def calibration_error(
    confidence: Floats, right: Floats, bins: int = 10
) -> tuple[float, list[tuple[float, float, int]]]:
    """Expected calibration error over bins of equal mass, and (mean confidence, share right, count) a bin."""
    if not len(confidence):
        return math.nan, []
    order = np.argsort(confidence, kind="stable")
    rows: list[tuple[float, float, int]] = []
    error = 0.0
    for part in np.array_split(order, min(bins, len(order))):
        said, was = float(confidence[part].mean()), float(right[part].mean())
        rows.append((said, was, len(part)))
        error += len(part) / len(order) * abs(said - was)
    return error, rows
