"""Do steps get long when a kind of work begins? Coincidences between arrivals and the time between tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.findings import fleet_series
from diag.detectors.view import View
from diag.model import Floats, Series
from diag.records.cohorts import Flags, Requests
from diag.stats.timing import correlation

__all__ = ["Rhythm", "rhythm_of", "rhythm_of_arrivals"]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """``r``: correlation over the incident of a cause and the time between tokens, with its p-value at the
    effective number of points; ``low_seconds``/``high_seconds``: medians of the effect in the lower and
    upper third of the cause."""

    r: float
    p: float
    low_seconds: float
    high_seconds: float

    @property
    def keeps_time(self) -> bool:
        """Whether they go together beyond chance."""
        return self.r >= 0.3 and self.p < 0.01 and self.high_seconds > 1.1 * self.low_seconds


def rhythm_of(view: View, cause: str, *effects: str) -> Rhythm | None:
    """Of two metrics of the slow engines, the first of ``effects`` that is known; None when either is
    missing."""
    driver = fleet_series(view.case, cause, view.affected or None)
    effect = _first(view, effects)
    if driver is None or effect is None:
        return None
    inside = _inside(view, effect)
    return _rhythm(driver.values[inside], effect.values[inside])


def rhythm_of_arrivals(view: View, requests: Requests, chosen: Flags, *effects: str) -> Rhythm | None:
    """Of the number of ``chosen`` requests that began in each look-back, and a metric; None without the
    metric."""
    effect = _first(view, effects)
    if effect is None:
        return None
    # A request shows where it arrives and a step after; the metric looks back over the same stretch.
    begun = np.sort(requests.ts[chosen])
    reach = view.spans.look_back_seconds
    counts = np.searchsorted(begun, effect.times, side="right")
    counts = counts - np.searchsorted(begun, effect.times - reach, side="right")
    inside = _inside(view, effect)
    return _rhythm(counts[inside].astype(np.float64), effect.values[inside])


def _first(view: View, names: tuple[str, ...]) -> Series | None:
    for name in names:
        series = fleet_series(view.case, name, view.affected or None)
        if series is not None and np.isfinite(series.within(view.spans.incident)).sum() >= 10:
            return series
    return None


def _inside(view: View, series: Series) -> Flags:
    inside: Flags = (series.times >= view.spans.incident.start) & (series.times <= view.spans.incident.end)
    return inside


def _rhythm(cause: Floats, effect: Floats) -> Rhythm | None:
    known = np.isfinite(cause) & np.isfinite(effect)
    cause, effect = cause[known], effect[known]
    if len(cause) < 10:
        return None
    r, p = correlation(cause, effect)
    if not np.isfinite(r):
        return None
    # Few and many are told apart at half of the usual peak, however seldom it is reached.
    many = cause > (float(np.min(cause)) + float(np.quantile(cause, 0.95))) / 2
    if not many.any():
        many = cause > float(np.median(cause))
    few = float(np.median(effect[~many]))
    return Rhythm(r, p, few, float(np.median(effect[many])) if many.any() else few)
