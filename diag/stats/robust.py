"""Location, spread and slope that one wild point cannot move.

Arrays are float64, one-dimensional; NaN is skipped unless said otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diag.errors import TooFewPoints

__all__ = ["geometric_mean", "mad_sigma", "pair_slopes", "theil_sen", "weighted_mean", "weighted_quantile"]

Floats = NDArray[np.float64]

_MAD_TO_SIGMA = 1.4826  # JASA 88 (1993) 1273
_MAX_PAIRS = 20_000


def mad_sigma(x: Floats) -> float:
    """Robust standard deviation: 1.4826 × median |x − median|; NaN for an empty array."""
    x = x[np.isfinite(x)]
    if x.size == 0:
        return float("nan")
    return float(_MAD_TO_SIGMA * np.median(np.abs(x - np.median(x))))


def geometric_mean(x: Floats) -> float:
    """exp(mean(log x)) over the positive values; NaN when there are none."""
    x = x[np.isfinite(x) & (x > 0)]
    return float(np.exp(np.mean(np.log(x)))) if x.size else float("nan")


def weighted_mean(x: Floats, weights: Floats) -> float:
    """Mean of ``x`` by ``weights`` (same shape), pairs with a NaN or a weight ≤ 0 left out.

    NaN when no pair is left."""
    keep = np.isfinite(x) & np.isfinite(weights) & (weights > 0)
    if not keep.any():
        return float("nan")
    return float(np.average(x[keep], weights=weights[keep]))


def weighted_quantile(x: Floats, q: float, weights: Floats) -> float:
    """Smallest value at which the cumulated weight reaches ``q`` of the whole; NaN when empty."""
    keep = np.isfinite(x) & np.isfinite(weights) & (weights > 0)
    if not keep.any():
        return float("nan")
    order = np.argsort(x[keep], kind="stable")
    values, cumulated = x[keep][order], np.cumsum(weights[keep][order])
    return float(values[np.searchsorted(cumulated, q * cumulated[-1], side="left").clip(0, len(values) - 1)])


def pair_slopes(x: Floats, y: Floats) -> Floats:
    """Slopes between all pairs with different ``x`` (thinned deterministically to 20,000 pairs)."""
    keep = np.isfinite(x) & np.isfinite(y)
    x, y = x[keep], y[keep]
    i, j = np.triu_indices(len(x), k=1)
    if len(i) > _MAX_PAIRS:
        chosen = np.linspace(0, len(i) - 1, _MAX_PAIRS).astype(np.intp)
        i, j = i[chosen], j[chosen]
    dx = x[j] - x[i]
    usable = np.abs(dx) > 1e-12
    slopes: Floats = (y[j] - y[i])[usable] / dx[usable]
    return slopes


def theil_sen(x: Floats, y: Floats) -> tuple[float, float]:
    """Median slope and intercept of y on x (breakdown 29 %; JASA 63 (1968) 1379).

    Raises TooFewPoints with fewer than five usable pairs of points."""
    slopes = pair_slopes(x, y)
    if len(slopes) < 5:
        raise TooFewPoints("a slope needs at least five pairs of points")
    slope = float(np.median(slopes))
    keep = np.isfinite(x) & np.isfinite(y)
    return slope, float(np.median(y[keep] - slope * x[keep]))
