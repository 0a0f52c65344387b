"""Where a series changes level, without taking slow noise for steps.

PELT (JASA 107 (2012) 1590) with squared cost; the penalty is built on the long-run variance
(Econometrica 55 (1987) 703), since one on first differences finds dozens of false steps in
correlated scrapes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Step", "change_points", "dominant_step", "exceedance_onset", "long_run_variance"]

Floats = NDArray[np.float64]


def long_run_variance(x: Floats) -> float:
    """γ₀ + 2Σ(1−k/L)γ_k over L = ⌊1.5√n⌋ lags, at least 0.2·γ₀; NaN-free input."""
    z = x - x.mean()
    n = len(z)
    gamma0 = float(z @ z) / n
    lags = min(int(1.5 * np.sqrt(n)), n - 1)
    total = gamma0
    for k in range(1, lags):
        total += 2 * (1 - k / lags) * float(z[:-k] @ z[k:]) / n
    return max(total, 0.2 * gamma0)


def change_points(x: Floats, variance: float, *, min_size: int = 8) -> list[int]:
    """Indices at which a new level begins (PELT, penalty 3·ln n·``variance``).

    ``variance``: long-run variance of a quiet stretch of the same series. NaN-free input.
    """
    n = len(x)
    if n < 2 * min_size:
        return []
    penalty = 3 * np.log(n) * max(variance, 1e-12)
    sums = np.concatenate([[0.0], np.cumsum(x)])
    squares = np.concatenate([[0.0], np.cumsum(x * x)])

    def cost(starts: NDArray[np.intp], end: int) -> Floats:
        length = end - starts
        part: Floats = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / length
        return part

    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    last = np.zeros(n + 1, dtype=np.intp)
    candidates = np.array([0], dtype=np.intp)
    for end in range(min_size, n + 1):
        totals = best[candidates] + cost(candidates, end) + penalty
        winner = int(np.argmin(totals))
        best[end], last[end] = totals[winner], candidates[winner]
        candidates = candidates[totals - penalty <= best[end]]
        if end - min_size + 1 >= min_size:
            candidates = np.append(candidates, end - min_size + 1)
    found: list[int] = []
    at = n
    while last[at] > 0:
        at = int(last[at])
        found.append(at)
    return found[::-1]


@dataclass(frozen=True, slots=True)
class Step:
    """The split of a series into two levels that explains most. ``at``: first index of the second level;
    ``rise``: second mean minus first; ``score``: the rise in its own standard errors, each side with its own
    long-run variance. The split was sought, so that a score of 3 is nothing yet: of pure noise every
    hundredth series reaches about 3.5 (Econometrica 61 (1993) 821)."""

    at: int
    rise: float
    score: float


def dominant_step(x: Floats, *, min_size: int = 3, first: int = 0) -> Step | None:
    """The largest lasting step of ``x`` (NaN-free) at or after index ``first``; None for short series.

    Large is what splits best: |difference of means| × √(k(n−k)/n)."""
    n = len(x)
    splits = np.arange(max(min_size, first), n - min_size + 1)
    if not len(splits):
        return None
    sums = np.cumsum(x)
    left = sums[splits - 1] / splits
    right = (sums[-1] - sums[splits - 1]) / (n - splits)
    gains = (right - left) * np.sqrt(splits * (n - splits) / n)
    at = int(splits[np.argmax(gains)])
    before, after = x[:at], x[at:]
    rise = float(after.mean() - before.mean())
    error = np.sqrt(long_run_variance(before) / at + long_run_variance(after) / (n - at))
    return Step(at, rise, rise / max(float(error), 1e-9))


def exceedance_onset(bad: NDArray[np.bool_], *, need: int, of: int, settled: int = 0) -> int | None:
    """First index that is bad and begins a stretch of ``of`` points with at least ``need`` bad ones.

    ``settled``: where the new level certainly holds; what begins before must be bad, up to there, at least
    half as often as from there on, so that a passing swarm is not taken for the beginning. None when no
    stretch is such. A stretch cut off by the end counts with what it has."""
    counts = np.concatenate([[0], np.cumsum(bad)])
    settled = min(settled, len(bad))
    usual = (counts[-1] - counts[settled]) / max(len(bad) - settled, 1)
    for start in np.flatnonzero(bad):
        end = min(int(start) + of, len(bad))
        if counts[end] - counts[start] < need:
            continue
        if 2 * (counts[settled] - counts[start]) >= usual * (settled - start):
            return int(start)
    return None
