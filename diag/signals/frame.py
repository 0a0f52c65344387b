"""Evaluate the expression algebra on raw samples (numpy), to the letter as Prometheus 2 would.

Seam only so far; the evaluator follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Grid", "RawSeries"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Grid:
    """Evaluation times ``start, start + step, … ≤ end`` and the look-back ``window``, all seconds."""

    start: float
    end: float
    step: float
    window: float

    @property
    def times(self) -> Floats:
        """Unix seconds, float64, shape (n,)."""
        count = int(np.floor((self.end - self.start) / self.step + 1e-9)) + 1
        return self.start + self.step * np.arange(max(count, 0), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class RawSeries:
    """One series as scraped. ``labels`` hold ``__name__``; ``times`` unix seconds, ascending, unique;
    ``values`` float64, NaN allowed (stale or not a number)."""

    labels: Mapping[str, str]
    times: Floats
    values: Floats
