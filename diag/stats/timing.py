"""Do two things happen together? For on/off courses and for smooth ones.

Plain correlation of scrapes is worthless (see ``shift``); a placebo made by shifting one course in
time keeps its own rhythm and breaks only the coincidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Coincidence", "coincidence", "correlation", "transitions"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Coincidence:
    """``phi``: correlation of two 0/1 courses; ``p``: share of circular shifts that do as well;
    ``transitions``: on/off changes of the cause (fewer than 8 prove little);
    ``bad_when_on``, ``bad_when_off``: share of bad points in either state."""

    phi: float
    p: float
    transitions: int
    bad_when_on: float
    bad_when_off: float


def transitions(on: Flags) -> int:
    """How often the course switches."""
    return int(np.count_nonzero(np.diff(on.astype(np.int8))))


def coincidence(on: Flags, bad: Flags, *, guard: int) -> Coincidence | None:
    """Compare cause ``on`` with effect ``bad`` (same grid). Circular shifts nearer than ``guard``
    points are no placebo. None when either never changes."""
    n = len(on)
    if n < 4 * guard or on.all() or not on.any() or bad.all() or not bad.any():
        return None
    observed = _phi(on, bad)
    shifts = range(guard, n - guard, max(1, (n - 2 * guard) // 200))
    placebo = np.array([_phi(np.roll(on, s), bad) for s in shifts])
    p = (1 + np.count_nonzero(placebo >= observed)) / (1 + len(placebo))
    return Coincidence(observed, float(p), transitions(on), float(bad[on].mean()), float(bad[~on].mean()))


def _phi(a: Flags, b: Flags) -> float:
    x, y = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else 0.0


def correlation(x: Floats, y: Floats) -> tuple[float, float]:
    """Pearson r and its p-value with the effective number of points for two correlated courses
    (Can. J. Fish. Aquat. Sci. 55 (1998) 2127). Points with a NaN on either side are dropped.

    (nan, nan) with fewer than ten points or a constant course."""
    from scipy.special import stdtr

    keep = np.isfinite(x) & np.isfinite(y)
    x, y = (
        x[keep] - x[keep].mean() if keep.any() else x[keep],
        y[keep] - y[keep].mean() if keep.any() else y[keep],
    )
    n = len(x)
    power = float(np.sqrt((x @ x) * (y @ y))) if n else 0.0
    if n < 10 or power == 0:
        return float("nan"), float("nan")
    r = float(x @ y) / power
    lags = np.arange(1, n // 4 + 1)
    damping = sum((1 - k / n) * _acf(x, int(k)) * _acf(y, int(k)) for k in lags)
    effective = float(np.clip(n / max(1 + 2 * damping, 1e-9), 3, n))
    t = abs(r) * np.sqrt((effective - 2) / max(1 - r * r, 1e-12))
    return r, float(2 * stdtr(effective - 2, -t))


def _acf(z: Floats, k: int) -> float:
    return float(z[:-k] @ z[k:]) / float(z @ z)
