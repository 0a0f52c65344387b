"""What the incident cost, and whom: counted from request records, else estimated from the engines' clocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.view import View
from diag.detectors.workload import Workload
from diag.exhibits import Cohort, Impact
from diag.model import Floats
from diag.records.cohorts import Flags

__all__ = ["impact_of"]

_FEWEST = 3
_TENANTS = 6


def impact_of(view: View) -> Impact | None:
    """None where nobody is worse off, or nothing was counted."""
    if not view.symptomatic:
        return None
    return _recorded(view.workload) if view.workload is not None else _measured(view)


def _recorded(work: Workload) -> Impact:
    r, inc, base = work.requests, work.incident, work.baseline
    wait = np.where(np.isfinite(r.waited), r.waited, np.nan)
    usual = wait[base & np.isfinite(wait)]
    limit = float(np.quantile(usual, 0.95)) if len(usual) >= _FEWEST else np.nan
    known = inc & np.isfinite(wait)
    return Impact(
        requests=int(inc.sum()),
        slow=int((wait[known] > limit).sum()) if np.isfinite(limit) else None,
        failed=_counted(r.failed, r.told & inc),
        left=_counted(r.aborted, r.told & inc),
        sessions=_distinct(r.session[inc]) if r.sessions else None,
        tenants=_distinct(r.tenant[inc]) if r.tenants else None,
        lost_seconds=_lost(wait, base, known),
        cohorts=tuple(_cohorts(work, wait)),
        source="request records",
    )


def _counted(flags: Flags, told: Flags) -> int | None:
    """Among requests whose end is on record; None where no end is."""
    return int((flags & told).sum()) if told.any() else None


def _distinct(codes: np.ndarray) -> int:
    return len(np.unique(codes[codes >= 0]))


def _lost(wait: Floats, base: Flags, known: Flags) -> float | None:
    """Seconds beyond the usual median, summed."""
    usual = wait[base & np.isfinite(wait)]
    if len(usual) < _FEWEST or not known.any():
        return None
    return float(np.maximum(wait[known] - np.median(usual), 0.0).sum())


def _cohorts(work: Workload, wait: Floats) -> Iterator[Cohort]:
    """Sessions that grew against the others where there are such, then tenants, the hardest hit first."""
    r = work.requests
    if work.growth is not None and work.growth.sessions and work.findings["session_growth_ratio"].effect >= 1:
        old = np.isin(r.session, work.growth.codes)
        yield _cohort("sessions that grew", work, wait, old)
        yield _cohort("all other sessions", work, wait, ~old)
    tenants = [_cohort(f"tenant {n}", work, wait, r.tenant == code) for code, n in enumerate(r.tenants)]
    if len(tenants) > 1:
        yield from sorted(tenants, key=lambda c: -(c.lost_seconds or 0.0))[:_TENANTS]


def _cohort(name: str, work: Workload, wait: Floats, chosen: Flags) -> Cohort:
    known = np.isfinite(wait) & chosen

    def p95(window: Flags) -> float | None:
        values = wait[known & window]
        return float(np.quantile(values, 0.95)) if len(values) >= _FEWEST else None

    return Cohort(
        name, int((chosen & work.incident).sum()), p95(work.baseline), p95(work.incident),
        _lost(wait, work.baseline & chosen, known & work.incident),
    )  # fmt: skip


def _measured(view: View) -> Impact | None:
    """Without records: first tokens a second times what they took longer."""
    seconds, rate = view.fleet.get("ttft_seconds_mean"), view.fleet.get("first_tokens_per_second")
    if seconds is None or rate is None:
        return None
    count = rate.during * view.spans.incident.seconds
    return Impact(
        requests=round(count), slow=None, failed=None, left=None, sessions=None, tenants=None,
        lost_seconds=max(seconds.during - seconds.before, 0.0) * count, cohorts=(),
        source="the affected engines' counters; no request records were given",
    )  # fmt: skip
