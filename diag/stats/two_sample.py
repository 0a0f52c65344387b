"""Two samples, or two courses, side by side: what generic rankers are made of.

None of these p-values holds on raw scrapes, which are far from independent; only the statistics are used,
to sort by. Arrays are float64 without NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["kolmogorov", "spearman"]

Floats = NDArray[np.float64]


def kolmogorov(a: Floats, b: Floats) -> float:
    """Largest distance between the two empirical distribution functions, 0 … 1; 0 when one is empty."""
    if not len(a) or not len(b):
        return 0.0
    points = np.sort(np.concatenate([a, b]))
    below_a = np.searchsorted(np.sort(a), points, side="right") / len(a)
    below_b = np.searchsorted(np.sort(b), points, side="right") / len(b)
    return float(np.max(np.abs(below_a - below_b)))


def spearman(x: Floats, y: Floats) -> float:
    """Rank correlation, −1 … 1, ties sharing their mean rank; 0 when one of them never changes."""
    if len(x) < 3:
        return 0.0
    from scipy.stats import rankdata

    u, v = rankdata(x), rankdata(y)
    u, v = u - u.mean(), v - v.mean()
    norm = float(np.sqrt((u @ u) * (v @ v)))
    return float(u @ v) / norm if norm > 0 else 0.0
