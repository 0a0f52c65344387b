"""Do prompts climb through the incident, or jump at its start and stay?

Histograms of finished requests show a climbing tail as a ladder of bounds. The mean is a poor witness:
once the engine is saturated, the long requests finish last or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.findings import fleet_series
from diag.detectors.view import View
from diag.model import Window
from diag.stats.timing import correlation

__all__ = ["Climb", "climb_of", "follows"]

_CLIMBS = 1.25


@dataclass(frozen=True, slots=True)
class Climb:
    """Median of the raised points in the first and in the last third since they rose, in tokens."""

    signal: str
    early: float
    late: float

    @property
    def climbs(self) -> bool:
        """Whether the last third is clearly longer."""
        return self.late > _CLIMBS * self.early


def climb_of(view: View, signal: str) -> Climb | None:
    """Follow ``signal`` through the incident; None when it did not rise at all or points are few."""
    finding = view.fleet.get(signal)
    series = fleet_series(view.case, signal, view.affected or None)
    if finding is None or series is None or finding.effect < 1:
        return None
    # A climb begins before anybody feels it: from its own departure on, not from the symptom's.
    span = view.spans.incident
    begun = span.start if finding.onset is None else min(finding.onset, span.start)
    values = series.within(Window(begun, span.end))
    raised = np.where(values > 1.25 * finding.before, values, np.nan)
    third = len(raised) // 3
    early, late = raised[:third], raised[len(raised) - third :]
    if third < 2 or not np.isfinite(early).any() or not np.isfinite(late).any():
        return None
    return Climb(signal, float(np.nanmedian(early)), float(np.nanmedian(late)))


def follows(view: View, cause: str, effect: str) -> tuple[float, float] | None:
    """Correlation of the logarithms of two signals over the whole window, with its p-value at the
    effective number of points; None when either is missing or too short."""
    pair = [fleet_series(view.case, name, view.affected or None) for name in (cause, effect)]
    if pair[0] is None or pair[1] is None:
        return None
    logs = [
        np.log(np.where(series.values > 0, series.values, np.nan)) for series in pair if series is not None
    ]
    r, p = correlation(logs[0], logs[1])
    return (r, p) if np.isfinite(r) else None
