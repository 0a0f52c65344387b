"""Which clients wait longer than before: all of them, or one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.in_flight import crowding
from diag.detectors.view import View
from diag.records.cohorts import Flags

__all__ = ["Hit", "crowding_of_hit", "hit_clients", "requests_of_hit"]

_FEWEST = 6  # requests of one client on either side
_RATIO, _SECONDS = 1.5, 0.3  # what a user notices (see ``symptoms.LIMITS``)


@dataclass(frozen=True, slots=True)
class Hit:
    """``names``: clients whose median wait rose so that they notice; ``known``: clients with enough requests
    to say; ``share``: of all extra seconds, those of the client that waits most."""

    names: tuple[str, ...]
    known: int
    share: float


def hit_clients(view: View) -> Hit | None:
    """By tenant; None without records or tenants."""
    if view.workload is None or not view.workload.requests.tenants:
        return None
    r, work = view.workload.requests, view.workload
    wait = np.where(np.isfinite(r.waited), r.waited, r.duration)
    names, extra, known = [], [], 0
    for code, name in enumerate(r.tenants):
        own = (r.tenant == code) & np.isfinite(wait)
        before, during = wait[own & work.baseline], wait[own & work.incident]
        if len(before) < _FEWEST or len(during) < _FEWEST:
            continue
        known += 1
        usual, now = float(np.median(before)), float(np.median(during))
        extra.append(float(np.maximum(during - usual, 0.0).sum()))
        if now > _RATIO * usual and now > usual + _SECONDS:
            names.append(name)
    if not known:
        return None
    total = sum(extra)
    return Hit(tuple(names), known, max(extra) / total if total > 0 else 0.0)


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
