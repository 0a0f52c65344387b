"""How many requests were under way: at the clients, and at the engines.

Where clients have more under way than the engines, the rest waits in between; where the engines then
stand at one number, something lets no more of them through.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.findings import fleet_series
from diag.detectors.view import View
from diag.model import Floats
from diag.records.cohorts import Flags, Requests

__all__ = ["Deadline", "InFlight", "crowding", "deadline_of", "in_flight", "under_way"]

_ROUND_SECONDS = (
    5,
    10,
    15,
    20,
    25,
    30,
    45,
    60,
    75,
    90,
    100,
    120,
    150,
    180,
    240,
    300,
    600,
    900,
    1200,
    1800,
    3600,
)
_NEAR = 0.02  # a limit strikes late, never early: by a poll, a retry, the way back
_FEWEST = 5
_SLICES, _CROWD_FEWEST = 8, 40


@dataclass(frozen=True, slots=True)
class InFlight:
    """Means over the two windows. ``outside``: requests that clients have under way and engines do not;
    ``ceiling``: what the engines stood at while somebody waited outside, ``pinned``: the share of that
    time spent within a twentieth of it; ``waiting``: in the engines' own queues meanwhile."""

    engines_before: float
    engines_during: float
    outside_before: float
    outside_during: float
    ceiling: float
    pinned: float
    waiting: float
    onset: float | None


@dataclass(frozen=True, slots=True)
class Deadline:
    """Failures that came at one round time: ``share`` of all failures. ``longer_before``/``longer_during``:
    share of good answers that took longer than that: what a new limit cuts off was there before it.
    ``longer_prompts``: median prompt of those that failed then over that of the good ones; ``pace``: median
    time of good answers, during over before; NaN where not known."""

    seconds: float
    share: float
    failures: int
    longer_before: float
    longer_during: float
    longer_prompts: float = float("nan")
    pace: float = float("nan")


def under_way(requests: Requests, times: Floats, chosen: Flags | None = None) -> Floats:
    """How many of the chosen requests were under way at each of ``times``; those that never ended count
    for as long as they are known to have waited."""
    keep = np.isfinite(requests.ts) if chosen is None else chosen
    length = np.where(np.isfinite(requests.duration), requests.duration, requests.waited)
    starts = np.sort(requests.ts[keep])
    ends = np.sort(requests.ts[keep] + np.nan_to_num(length[keep]))
    counts: Floats = (
        np.searchsorted(starts, times, side="right") - np.searchsorted(ends, times, side="right")
    ).astype(np.float64)
    return counts


def in_flight(view: View) -> InFlight | None:
    """Compare clients and engines on the grid; None without records or without the engines' counts."""
    running = fleet_series(view.case, "running_requests")
    if view.workload is None or running is None:
        return None
    queued = fleet_series(view.case, "waiting_requests")
    waiting = np.nan_to_num(queued.values) if queued is not None else np.zeros_like(running.values)
    held = running.values + waiting
    sent = _smoothed(view, running.times)
    outside = np.maximum(sent - held, 0.0)
    base = _inside(view, running.times, before=True) & np.isfinite(held)
    inc = _inside(view, running.times, before=False) & np.isfinite(held)
    if base.sum() < _FEWEST or inc.sum() < _FEWEST:
        return None
    shut = inc & (outside >= np.maximum(2.0, 0.25 * held))
    ceiling = float(np.quantile(held[shut], 0.9)) if shut.any() else float("nan")
    pinned = float((np.abs(held[shut] - ceiling) <= max(0.5, 0.05 * ceiling)).mean()) if shut.any() else 0.0
    return InFlight(
        float(held[base].mean()), float(held[inc].mean()),
        float(outside[base].mean()), float(outside[inc].mean()),
        ceiling, pinned, float(waiting[shut].mean()) if shut.any() else float(waiting[inc].mean()),
        float(running.times[shut][0]) if shut.any() else None,
    )  # fmt: skip


def _smoothed(view: View, times: Floats) -> Floats:
    """Clients' count as the engines' gauges show theirs: the mean over the look-back."""
    assert view.workload is not None
    back = view.spans.look_back_seconds
    offsets = np.linspace(0.0, back, 6)
    return np.asarray(
        np.mean([under_way(view.workload.requests, times - offset) for offset in offsets], axis=0)
    )


def _inside(view: View, times: Floats, *, before: bool) -> Flags:
    assert view.workload is not None
    span = view.workload.quiet if before else view.spans.settled
    flags: Flags = (times >= span.start) & (times <= span.end)
    return flags


def crowding(view: View, chosen: Flags | None = None) -> float | None:
    """Whether who came while many were under way waited longer: rank correlation (-1 … 1) inside slices of
    the incident, so that a wait that merely climbs with time does not count.

    A queue for slots makes it high; a slow way costs everybody the same. None below forty requests."""
    if view.workload is None:
        return None
    r, work = view.workload.requests, view.workload
    held = np.maximum(r.duration - r.upstream, 0.0)  # a gateway's log: an answer's own length is no wait
    wait = np.where(np.isfinite(r.waited), r.waited, np.where(np.isfinite(held), held, r.duration))
    keep = work.incident & np.isfinite(wait)
    keep &= chosen if chosen is not None else np.ones(len(r), dtype=bool)
    if keep.sum() < _CROWD_FEWEST:
        return None
    crowd = under_way(r, r.ts[keep] - 1e-6, chosen)
    slices = np.array_split(np.arange(len(crowd)), _SLICES)
    ranks = [(_ranked(crowd[one]), _ranked(wait[keep][one])) for one in slices]
    x, y = (np.concatenate([pair[side] for pair in ranks]) for side in (0, 1))
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else 0.0


def _ranked(values: Floats) -> Floats:
    """Ranks around their mean; equal values share one."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    upto = np.cumsum(counts)
    ranks = (upto - (counts - 1) / 2)[place]
    centred: Floats = ranks - ranks.mean()
    return centred


def deadline_of(requests: Requests, base: Flags, inc: Flags) -> Deadline | None:
    """The round time at which most failures came; None with fewer than five failures."""
    lost = requests.failed | requests.aborted
    ended = requests.duration[inc & lost & np.isfinite(requests.duration)]
    if len(ended) < _FEWEST:
        return None
    best = max(_ROUND_SECONDS, key=lambda limit: int(_near(ended, limit).sum()))
    share = float(_near(ended, best).mean())
    longer = [_longer(requests, window & ~lost, best) for window in (base, inc)]
    struck = inc & lost & _near(np.nan_to_num(requests.duration), best)
    prompts = _ratio(requests.prompt[struck], requests.prompt[inc & ~lost])
    pace = _ratio(requests.duration[inc & ~lost], requests.duration[base & ~lost])
    return Deadline(float(best), share, len(ended), longer[0], longer[1], prompts, pace)


def _ratio(over: Floats, under: Floats) -> float:
    """Of medians; NaN where either is not known."""
    a, b = over[np.isfinite(over)], under[np.isfinite(under)]
    return float(np.median(a) / np.median(b)) if len(a) and len(b) and np.median(b) > 0 else float("nan")


def _longer(requests: Requests, chosen: Flags, limit: float) -> float:
    lasted = requests.duration[chosen & np.isfinite(requests.duration)]
    return float((lasted > limit * (1 + _NEAR) + 0.2).mean()) if len(lasted) else 0.0


def _near(seconds: Floats, limit: float) -> Flags:
    flags: Flags = (seconds >= limit * (1 - _NEAR / 4)) & (seconds <= limit * (1 + _NEAR) + 0.2)
    return flags
