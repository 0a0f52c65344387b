"""How much the whole service is asked for, whoever of its replicas is slow."""

from __future__ import annotations

from diag.detectors.findings import fleet_series, judge_series
from diag.detectors.view import View
from diag.model import Finding

__all__ = ["rate_over_all"]


def rate_over_all(view: View) -> Finding | None:
    """Requests a second over all replicas, by records or else by first tokens; None when neither is known.

    A replica that takes over another's part gets more while nobody sends more."""
    recorded = view.finding("arrivals_per_second")
    whole = fleet_series(view.case, "first_tokens_per_second")
    if recorded is not None or whole is None:
        return recorded
    return judge_series(whole, view.spans)
