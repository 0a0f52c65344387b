"""Sequence slots that are taken by requests which do not run: parked for an adapter, a transfer, a
grammar."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.silence import same_instance
from diag.detectors.view import View

__all__ = ["Slots", "parked_slots"]

_FEWEST = 5
_AT_LIMIT = 0.8


@dataclass(frozen=True, slots=True)
class Slots:
    """``limit``: most that ever ran and were parked together while others waited; ``share``: of that time
    spent at it; ``running``/``parked``/``waiting``: means then, ``waiting`` without the parked ones.
    ``kv_usage``: the largest, 0 … 1; None when not known."""

    instance: str
    limit: float
    share: float
    running: float
    parked: float
    waiting: float
    kv_usage: float | None
    onset: float

    @property
    def binds(self) -> bool:
        """Whether running and parked ones together stand at a limit."""
        return self.share >= _AT_LIMIT


def parked_slots(view: View) -> Slots | None:
    """The instance on which parked requests hold most slots while others wait; None where nothing is parked
    or the engine does not tell parked from waiting."""
    found = [slots for where in view.affected or sorted(view.engines) if (slots := _slots(view, where))]
    return max(found, key=lambda s: (s.binds, s.parked), default=None)


def _slots(view: View, where: str) -> Slots | None:
    names = ("running_requests", "waiting_requests", "waiting_deferred_requests")
    running, waiting, parked = (same_instance(view.case, n, where) for n in names)
    if running is None or waiting is None or parked is None:
        return None
    inside = (running.times >= view.spans.incident.start) & (running.times <= view.spans.incident.end)
    beyond = waiting.values - parked.values
    there = inside & (np.nan_to_num(parked.values) >= 1) & (np.nan_to_num(beyond) >= 0.5)
    there &= np.isfinite(running.values)
    if there.sum() < _FEWEST:
        return None
    taken = (running.values + parked.values)[there]
    limit = float(np.quantile(taken, 0.95))
    usage = same_instance(view.case, "kv_cache_usage_ratio", where)
    kv = usage.values[there] if usage is not None else np.empty(0)
    return Slots(
        where, limit, float((taken >= limit - 1.0).mean()), float(np.mean(running.values[there])),
        float(np.mean(parked.values[there])), float(np.mean(beyond[there])),
        float(np.nanmax(kv)) if np.isfinite(kv).any() else None, float(running.times[there][0]),
    )  # fmt: skip
