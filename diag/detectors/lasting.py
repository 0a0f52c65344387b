"""A window that is bad from first to last: nothing in it got worse, and it is no quiet time."""

from __future__ import annotations

import numpy as np

from diag.detectors.view import View
from diag.model import Floats
from diag.quantities import quantity
from diag.records.cohorts import Flags

__all__ = ["bad_throughout"]

_SLOW_SECONDS = 5.0  # a reader gives up around there; the alerts' bound, too
_FAILING_RATIO = 0.05  # one request in twenty


def bad_throughout(view: View) -> str | None:
    """What both halves of a window have that nobody calls usual, in words; None where they have none of it.
    A level, not a change: it accuses nobody, and whoever knows the service may find it usual."""
    slow, failing = _least(view, "ttft_seconds_p95"), _least(view, "error_ratio")
    if view.workload is not None:
        work = view.workload
        halves = [_tail(work.requests.waited, flags) for flags in (work.baseline, work.incident)]
        # Of a half that nobody recorded nothing is known: np.min, unlike min, says so whatever the order.
        both = float(np.min(halves))
        slow = max([x for x in (slow, both) if x is not None and np.isfinite(x)], default=None)
    if slow is not None and slow >= _SLOW_SECONDS:
        return f"first tokens took {quantity(slow, 'seconds')} (95th percentile) all along"
    if failing is not None and failing >= _FAILING_RATIO:
        return f"{quantity(failing, 'ratio')} of requests failed all along"
    return None


def _least(view: View, name: str) -> float | None:
    found = view.finding(name)
    return None if found is None else min(found.before, found.during)


def _tail(values: Floats, flags: Flags) -> float:
    known = values[flags & np.isfinite(values)]
    return float(np.quantile(known, 0.95)) if len(known) else float("nan")
