"""Unaffected peers are the controls: one card, replica or host apart from its likes at equal work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from diag.detectors.findings import judge_series
from diag.detectors.gpus import gpu_name
from diag.detectors.places import findings_here, series_here
from diag.detectors.service import slower_at
from diag.detectors.view import View
from diag.model import Finding, Floats, Labels, Series
from diag.records.cohorts import Flags

__all__ = [
    "Spread",
    "busy_only",
    "elsewhere",
    "same_card",
    "slower_there",
    "spread_of",
    "under_load",
]

_BUSY = 0.3  # a GPU used less has no reason to hold clock, power or link up
_MOSTLY = 0.5
_FEWEST = 12  # requests on either side of a share


@dataclass(frozen=True, slots=True)
class Spread:
    """How one replica's share of the arrivals stands against an even one: 1 is even, 2 is twice its part.

    ``before``/``during`` of the replica whose share rose most; ``replicas``: how many share the work;
    ``sigma``: deviation of the change by chance alone."""

    instance: str
    before: float
    during: float
    replicas: int
    sigma: float


def elsewhere(view: View, name: str) -> tuple[Finding, ...]:
    """Findings of a GPU or node signal where no slow engine runs."""
    here, _ = findings_here(view, name)
    known = {id(found) for found in here}
    return tuple(found for found in view.each.get(name, ()) if id(found) not in known)


def under_load(view: View, name: str, sign: int) -> Finding | None:
    """Of the slow engines' cards the finding that moved furthest, idle moments left out: an idle link
    shifts down and an idle card draws little, which is no fault. None where the card was never busy."""
    series, _ = series_here(view, name)
    found = [judge_series(busy_only(view, one), view.spans) for one in series]
    known = [one for one in found if one is not None]
    return max(known, key=lambda f: sign * f.effect) if known else None


def busy_only(view: View, series: Series) -> Series:
    """``series`` without the moments in which its card was idle; where no use is known, without those in
    which no engine on it ran anything; as it is where neither is."""
    use = same_card(view.case.of("gpu_utilization_ratio"), series.labels)
    if use is not None and len(use.times) == len(series.times):
        busy = _wholly(np.isfinite(use.values) & (use.values >= _BUSY), view.spans.overlap_points)
    else:
        working = _working(view, series)
        if working is None:
            return series
        busy = _wholly(working, view.spans.overlap_points)
    values: Floats = np.where(busy, series.values, np.nan)
    return Series(series.signal, series.labels, series.times, values, series.producer)


def _wholly(busy: Flags, overlap: int) -> Flags:
    """Without the points whose look-back reaches into idle time, or just precedes it: they are half of each.
    Where hardly any would be left (a card that is now busy, now idle) all are kept."""
    idle = np.convolve(~busy, np.ones(2 * overlap + 1), mode="same")[: len(busy)] > 0
    wholly: Flags = busy & ~idle
    return wholly if wholly.sum() >= _MOSTLY * busy.sum() else busy


def _working(view: View, series: Series) -> Flags | None:
    """When engines on the card of ``series`` ran anything; None where nothing joins one to it."""
    names = (series.labels.get("gpu", ""), series.labels.get("gpu_index", ""))
    on = {
        j.instance for j in view.case.joins
        if j.node == series.labels.get("node") and (not j.gpus or any(name in j.gpus for name in names))
    }  # fmt: skip
    running = [s.values for s in view.case.of("running_requests") if s.labels.get("instance") in on]
    if not running or any(len(values) != len(series.times) for values in running):
        return None
    flags: Flags = np.nan_to_num(np.vstack(running)).max(axis=0) > 0
    return flags


def same_card(found: Iterable[Series], labels: Labels) -> Series | None:
    """The series of the card that ``labels`` name."""
    for one in found:
        if gpu_name(one.labels) == gpu_name(labels) and one.labels.get("gpu") == labels.get("gpu"):
            return one
    return None


def slower_there(view: View) -> tuple[float, str] | None:
    """The same at the engines that nobody complains about; None without such."""
    return slower_at(view, view.spared) if view.spared else None


def spread_of(view: View) -> Spread | None:
    """The replica whose share of the requests rose most; None with one replica or too few requests."""
    counted = _counts_of_records(view) or _counts_of_metrics(view)
    if counted is None:
        return None
    names, before, during = counted
    if before.sum() < _FEWEST or during.sum() < _FEWEST:
        return None
    a, b = before / before.sum(), during / during.sum()
    n, top = len(names), int(np.argmax(b - a))
    chance = a[top] * (1 - a[top]) / before.sum() + b[top] * (1 - b[top]) / during.sum()
    return Spread(names[top], float(n * a[top]), float(n * b[top]), n, float(n * np.sqrt(chance)))


def _counts_of_records(view: View) -> tuple[tuple[str, ...], Floats, Floats] | None:
    if view.workload is None or len(view.workload.requests.instances) < 2:
        return None
    r, work = view.workload.requests, view.workload
    size = len(r.instances)
    before, during = (
        np.bincount(r.instance[w & (r.instance >= 0)], minlength=size).astype(np.float64)
        for w in (work.baseline, work.incident)
    )
    return view.engines_named(r.instances), before, during


def _counts_of_metrics(view: View) -> tuple[tuple[str, ...], Floats, Floats] | None:
    found = view.each.get("first_tokens_per_second", ())
    if len(found) < 2:
        return None
    names = tuple(f.labels.get("instance", "") for f in found)
    spans = (view.spans.baseline.seconds, view.spans.settled.seconds)
    before, during = (
        np.array([max(rate, 0.0) * seconds for rate in rates])
        for rates, seconds in zip(([f.before for f in found], [f.during for f in found]), spans, strict=True)
    )
    return names, before, during
