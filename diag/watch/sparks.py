"""A course in a line of text. What was not measured is a gap, never a low bar."""

from __future__ import annotations

import numpy as np

from diag.model import Floats

__all__ = ["GAP", "spark"]

_BARS = "▁▂▃▄▅▆▇█"
GAP = "·"


def spark(values: Floats, width: int) -> str:
    """``values`` (NaN: not measured) in at most ``width`` characters, from their lowest to their highest."""
    if not len(values) or width < 1:
        return ""
    parts = np.array_split(values, min(width, len(values)))
    means = np.array([p[np.isfinite(p)].mean() if np.isfinite(p).any() else np.nan for p in parts])
    known = means[np.isfinite(means)]
    if not len(known):
        return GAP * len(means)
    low, high = float(known.min()), float(known.max())
    # What hardly moves is a flat line in the middle, not noise blown up.
    if high - low <= 1e-3 * max(abs(high), 1e-12):
        return "".join(GAP if not np.isfinite(m) else _BARS[3 if high else 0] for m in means)
    scaled = (means - low) / (high - low) * (len(_BARS) - 1)
    return "".join(GAP if not np.isfinite(s) else _BARS[round(float(s))] for s in scaled)
