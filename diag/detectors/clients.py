"""Which clients wait longer than before: all of them, or one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.in_flight import crowding
from diag.detectors.view import View
from diag.model import Floats
from diag.records.cohorts import Flags

__all__ = ["Hit", "crowding_of_hit", "hit_clients", "requests_of_hit"]

_OTHER_TROUBLE = (
    0.1  # of the worst client's extra wait: what is an order of magnitude less has another reason
)
_FEWEST = 6  # requests of one client on either side
_NOTICED = ((0.5, 1.5, 0.3), (0.95, 1.5, 0.5))  # quantile, ratio, seconds (see ``symptoms.LIMITS``)


@dataclass(frozen=True, slots=True)
class Hit:
    """``names``: clients whose median wait, or the worst of twenty, rose so that they notice, and not ten
    times less than the worst one's; ``known``: clients with enough requests to say; ``share``: of all extra
    seconds, those of the one that waits most."""

    names: tuple[str, ...]
    known: int
    share: float


def hit_clients(view: View) -> Hit | None:
    """By tenant; None without records or tenants."""
    if view.workload is None or not view.workload.requests.tenants:
        return None
    r, work = view.workload.requests, view.workload
    wait = np.where(np.isfinite(r.waited), r.waited, r.duration)
    noticed: dict[str, float] = {}
    extra: list[float] = []
    for code, name in enumerate(r.tenants):
        own = (r.tenant == code) & np.isfinite(wait)
        before, during = wait[own & work.baseline], wait[own & work.incident]
        if len(before) < _FEWEST or len(during) < _FEWEST:
            continue
        beyond = np.maximum(during - float(np.median(before)), 0.0)
        extra.append(float(beyond.sum()))
        if _notices(before, during):
            noticed[name] = float(beyond.mean())
    if not extra:
        return None
    worst, total = max(noticed.values(), default=0.0), sum(extra)
    names = tuple(name for name, seconds in noticed.items() if seconds >= _OTHER_TROUBLE * worst)
    return Hit(names, len(extra), max(extra) / total if total > 0 else 0.0)


def _notices(before: Floats, during: Floats) -> bool:
    """A queue that only bursts fill leaves the median alone."""
    for quantile, ratio, seconds in _NOTICED:
        usual, now = float(np.quantile(before, quantile)), float(np.quantile(during, quantile))
        if now > ratio * usual and now > usual + seconds:
            return True
    return False


def requests_of_hit(view: View) -> Flags | None:
    """The requests of the clients that wait longer, where others do not; else None."""
    hit = hit_clients(view)
    if hit is None or view.workload is None or not 0 < len(hit.names) < hit.known:
        return None
    r = view.workload.requests
    flags: Flags = np.isin(r.tenant, [r.tenants.index(name) for name in hit.names])
    return flags


def crowding_of_hit(view: View) -> float | None:
    """``crowding`` among those who wait longer: the others' quick answers say nothing of their queue."""
    return crowding(view, requests_of_hit(view))
