"""Find pages that were scraped but did not move, not even by the CPU time of serving them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from diag.model import Floats, Window
from diag.signals.frame import RawSeries
from diag.sources.naming import CPU_METRIC

__all__ = ["MIN_SCRAPES", "MIN_SECONDS", "page_stalls"]

MIN_SCRAPES = 5
MIN_SECONDS = 20.0
# Without the CPU counter an idle page is still too; only a busy one, and for longer, is suspect.
_MIN_SECONDS_WITHOUT_CPU = 60.0
_LOST_SCRAPE_FACTOR = 2.5


def page_stalls(
    pages: Mapping[str, Sequence[RawSeries]],
    up: Mapping[str, Sequence[RawSeries]],
    busy_names: frozenset[str],
) -> dict[str, tuple[Window, ...]]:
    """Spans in which an instance's page was bit-identical while its scrapes succeeded.

    ``pages``: by instance, the series of a serving engine's page that move when it works, with
    ``process_cpu_seconds_total`` where it has one. ``up`` by instance. ``busy_names``: gauges that
    are above zero while it works; they decide where there is no CPU counter.
    """
    found: dict[str, tuple[Window, ...]] = {}
    for instance in sorted(pages):
        stalls = _stalls(pages[instance], up.get(instance, ()), busy_names)
        if stalls:
            found[instance] = stalls
    return found


def _stalls(
    page: Sequence[RawSeries], up: Sequence[RawSeries], busy_names: frozenset[str]
) -> tuple[Window, ...]:
    page = [one for one in page if one.times.size]
    if not page:
        return ()
    has_cpu = any(one.labels.get("__name__") == CPU_METRIC for one in page)
    scrapes = np.unique(np.concatenate([one.times for one in page]))
    if scrapes.size < MIN_SCRAPES:
        return ()
    cuts = _cuts(page, scrapes)
    edges = np.concatenate([[0], cuts, [scrapes.size]]).astype(np.intp)
    stalls: list[Window] = []
    for first, past in pairwise(edges):
        span = Window(float(scrapes[first]), float(scrapes[past - 1]))
        least = MIN_SECONDS if has_cpu else _MIN_SECONDS_WITHOUT_CPU
        if past - first < MIN_SCRAPES or span.seconds < least or not _all_up(up, span):
            continue
        if has_cpu or _busy(page, span, busy_names):
            stalls.append(span)
    return tuple(stalls)


def _cuts(page: Iterable[RawSeries], scrapes: Floats) -> Floats:
    """Positions in ``scrapes`` at which something moved, or before which scrapes were lost."""
    moved = [np.empty(0)]
    for one in page:
        values = one.values
        changed = (values[1:] != values[:-1]) & ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
        moved.append(one.times[1:][changed])
    positions = np.searchsorted(scrapes, np.unique(np.concatenate(moved)))
    gaps = np.diff(scrapes)
    lost = np.flatnonzero(gaps > _LOST_SCRAPE_FACTOR * np.median(gaps)) + 1
    return np.unique(np.concatenate([positions, lost])).astype(np.float64)


def _all_up(up: Iterable[RawSeries], span: Window) -> bool:
    for one in up:
        inside = one.values[(one.times >= span.start) & (one.times <= span.end)]
        if np.any(inside != 1.0):
            return False
    return True


def _busy(page: Iterable[RawSeries], span: Window, busy_names: frozenset[str]) -> bool:
    for one in page:
        if one.labels.get("__name__") in busy_names:
            inside = one.values[(one.times >= span.start) & (one.times <= span.end)]
            if inside.size and np.nanmax(inside) > 0:
                return True
    return False
