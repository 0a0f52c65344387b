"""What turns find of their session's history, by whether they stayed on their replica."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.view import View

__all__ = ["Placement", "placement_of"]

_FEWEST = 8
_KEPT = 0.5  # of what turns reused before: where caches hold, those that stay find their history


@dataclass(frozen=True, slots=True)
class Placement:
    """Mean share (0 … 1) of the history that was found in the cache, in the incident by turns that ``stayed``
    on their replica and by those that ``moved``; ``usual``: by all of the baseline, NaN where too few."""

    stayed: float
    moved: float
    usual: float

    @property
    def stayed_miss(self) -> bool:
        """Whether turns that stay miss as well: then it is not the placement."""
        return self.stayed < _KEPT * self.usual


def placement_of(view: View) -> Placement | None:
    """From request records; None where fewer than eight turns stand on either side."""
    if view.workload is None:
        return None
    r, work = view.workload.requests, view.workload
    later = (r.previous >= 0) & np.isfinite(r.cached) & (np.nan_to_num(r.history) > 0)
    before = r.instance[np.maximum(r.previous, 0)]
    stayed, moved = (work.incident & later & side for side in (before == r.instance, before != r.instance))
    if stayed.sum() < _FEWEST or moved.sum() < _FEWEST:
        return None
    reuse = np.minimum(r.cached / np.maximum(r.history, 1), 1.0)
    usual = work.baseline & later
    return Placement(
        float(np.mean(reuse[stayed])),
        float(np.mean(reuse[moved])),
        float(np.mean(reuse[usual])) if usual.sum() >= _FEWEST else float("nan"),
    )
