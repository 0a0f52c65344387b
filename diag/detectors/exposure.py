"""Who waited behind whom: requests that arrived while a long prompt was still without its first token.

With first-come-first-served scheduling the wait of a short request is the rest of a long one; the
contrast between exposed and unexposed short requests shows it even where no engine metric does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.model import Floats
from diag.records.cohorts import Flags, Requests

__all__ = ["Exposure", "excess_seconds", "exposure_of", "share_of_excess"]

_FEWEST = 5


@dataclass(frozen=True, slots=True)
class Exposure:
    """Medians of the wait in seconds for short requests behind a long one and for those that were
    not; ``excess_share``: share of all excess seconds spent by the long ones and those behind."""

    behind_seconds: float
    free_seconds: float
    behind: int
    free: int
    excess_share: float
    own_share: float


def exposure_of(requests: Requests, long: Flags, base: Flags, inc: Flags) -> Exposure | None:
    """Compare within the incident; None when fewer than five requests stand on either side."""
    behind = _behind(requests, long) & inc & ~long & np.isfinite(requests.waited)
    free = inc & ~long & ~behind & np.isfinite(requests.waited)
    excess = excess_seconds(requests, base, inc)
    total = float(excess[inc].sum())
    if behind.sum() < _FEWEST or free.sum() < _FEWEST or total <= 0:
        return None
    return Exposure(
        float(np.median(requests.waited[behind])), float(np.median(requests.waited[free])),
        int(behind.sum()), int(free.sum()),
        float(excess[inc & (behind | long)].sum() / total), float(excess[inc & long].sum() / total),
    )  # fmt: skip


def share_of_excess(requests: Requests, long: Flags, base: Flags, inc: Flags) -> float | None:
    """Share of the incident's excess seconds spent by ``long`` requests and by those behind them."""
    excess = excess_seconds(requests, base, inc)
    total = float(excess[inc].sum())
    if total <= 0 or not (long & inc).any():
        return None
    return float(excess[inc & (long | _behind(requests, long))].sum() / total)


def excess_seconds(requests: Requests, base: Flags, inc: Flags) -> Floats:
    """How much longer than the baseline's median each request waited; 0 where unknown."""
    usual = requests.waited[base]
    usual = usual[np.isfinite(usual)]
    centre = float(np.median(usual)) if len(usual) else 0.0
    excess: Floats = np.where(
        inc & np.isfinite(requests.waited), np.maximum(requests.waited - centre, 0.0), 0.0
    )
    return excess


def _behind(requests: Requests, long: Flags) -> Flags:
    """Which requests arrived while some flagged request was waiting for its first token on their engine."""
    flags: Flags = np.zeros(len(requests), dtype=bool)
    giants = long & np.isfinite(requests.waited)
    for code in np.unique(requests.instance[giants]):
        here = requests.instance == code
        starts = np.sort(requests.ts[giants & here])
        ends = np.sort((requests.ts + requests.waited)[giants & here])
        begun = np.searchsorted(starts, requests.ts[here], side="left")
        over = np.searchsorted(ends, requests.ts[here], side="left")
        flags[here] = begun > over
    return flags
