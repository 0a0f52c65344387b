"""Did the mean move between two windows, and what shift can the data exclude?

Scrapes of one series are far from independent, so tests on raw points are worthless (20–97 % false
positives at a nominal 5 %). Means of blocks with an AR(1) correction keep their promise (1–8 %).
Formulas: Evaluation Review 19 (1995) 547; bias of the lag-one correlation Biometrika 41 (1954) 390.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shift", "block_means", "shift"]

Floats = NDArray[np.float64]

_BASELINE_BLOCKS = 6  # fewest for a lag-one correlation worth the name
_INCIDENT_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class Shift:
    """``mean(b) − mean(a)`` and its one-sided 95 % bounds; ``mde`` is the shift found with 80 % power."""

    shift: float
    standard_error: float
    low: float
    high: float
    mde: float
    sigma: float


def block_means(x: Floats, block: int) -> Floats:
    """Means of consecutive blocks of ``block`` points; blocks more than half NaN are left out."""
    count = len(x) // block
    if count == 0:
        return np.empty(0)
    rows = x[: count * block].reshape(count, block)
    seen = np.isfinite(rows).sum(axis=1)
    keep = seen * 2 >= block
    sums = np.where(np.isfinite(rows), rows, 0.0).sum(axis=1)
    means: Floats = sums[keep] / seen[keep]
    return means


def shift(a: Floats, b: Floats) -> Shift | None:
    """Compare the block means ``a`` (baseline) and ``b`` (incident); blocks must share no samples.

    None when there are fewer than six baseline or two incident blocks: then nothing can be excluded.
    """
    from scipy.special import stdtrit

    if len(a) < _BASELINE_BLOCKS or len(b) < _INCIDENT_BLOCKS:
        return None
    variance = float(np.var(a))
    rho = _lag_one(a)
    phi = float(np.clip(rho + (1 + 4 * rho) / len(a), 0.0, 0.95))
    thinning = (1 - phi) / (1 + phi)
    m_a, m_b = max(thinning * len(a), 2.0), max(thinning * len(b), 1.0)
    df = max(m_a - 1, 1.0)
    s2 = variance / max(1 - 1 / m_a, 0.2)
    # The incident may be noisier than the baseline; its own spread bounds the mean, too.
    s2_b = max(s2, float(np.var(b)))
    se = float(np.sqrt(s2 / m_a + s2_b / m_b))
    t95, t975, t80 = (float(stdtrit(df, q)) for q in (0.95, 0.975, 0.80))
    moved = float(np.mean(b) - np.mean(a))
    return Shift(moved, se, moved - t95 * se, moved + t95 * se, (t975 + t80) * se, float(np.sqrt(variance)))


def _lag_one(x: Floats) -> float:
    z = x - x.mean()
    power = float(z @ z)
    return float(z[:-1] @ z[1:]) / power if power > 0 else 0.0
