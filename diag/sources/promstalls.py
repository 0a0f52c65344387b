"""Find frozen pages in a live store: ask the store for suspects, look at those in the raw."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from diag.engines.registry import Engine
from diag.model import Window
from diag.signals.algebra import Matcher
from diag.signals.frame import Grid, RawSeries
from diag.signals.promql import selector
from diag.sources.evaluation import busy_gauges
from diag.sources.naming import CPU_METRIC, page_metric_names
from diag.sources.promapi import Api
from diag.sources.stalls import MIN_SCRAPES, MIN_SECONDS, page_stalls

__all__ = ["live_page_stalls"]

_MOST_SUSPECTS = 50


def live_page_stalls(
    api: Api,
    serving: Sequence[Engine],
    instances: frozenset[str],
    grid: Grid,
    scrape_seconds: float,
    matchers: Sequence[Matcher] = (),
) -> dict[str, tuple[Window, ...]]:
    """Spans in which a serving engine's page did not move (see ``page_stalls``), by instance.

    ``instances``: those of the ``serving`` engines. At most 50 suspects are looked at.
    """
    if not instances:
        return {}
    suspects = sorted(_suspects(api, serving, instances, grid, scrape_seconds, matchers))[:_MOST_SUSPECTS]
    if not suspects:
        return {}
    window = Window(grid.start - grid.window, grid.end)
    names = sorted({name for engine in serving for name in page_metric_names(engine)} | {CPU_METRIC})
    pages = _by_instance(_raw(api, names, suspects, window, scrape_seconds, matchers))
    up = _by_instance(_raw(api, ["up"], suspects, window, scrape_seconds, matchers))
    return page_stalls(pages, up, busy_gauges(serving))


def _suspects(
    api: Api, serving: Sequence[Engine], instances: frozenset[str], grid: Grid,
    scrape_seconds: float, matchers: Sequence[Matcher],
) -> set[str]:  # fmt: skip
    # A little less than the shortest stall, so that one between two grid points is not missed.
    span = max(MIN_SECONDS, MIN_SCRAPES * scrape_seconds) - grid.step
    look_back = f"{round(max(span, 2.0 * scrape_seconds) * 1000)}ms"
    still: set[str] = set()
    has_cpu: set[str] = set()
    cpu = f"max by (instance) (changes({selector(CPU_METRIC, matchers)}[{look_back}]))"
    for row in api.ranged(cpu, grid):
        who = row.labels.get("instance", "")
        has_cpu.add(who)
        if who in instances and (row.values == 0).any():
            still.add(who)
    if instances <= has_cpu:
        return still
    gauges = " or ".join(
        f"changes({selector(name, matchers)}[{look_back}])" for name in sorted(busy_gauges(serving))
    )
    if gauges:
        for row in api.ranged(f"max by (instance) ({gauges})", grid):
            who = row.labels.get("instance", "")
            if who in instances - has_cpu and (row.values == 0).any():
                still.add(who)
    return still


def _raw(
    api: Api, names: Sequence[str], instances: Sequence[str], window: Window,
    scrape_seconds: float, matchers: Sequence[Matcher],
) -> list[RawSeries]:  # fmt: skip
    only = Matcher("instance", "=~", "|".join(re.escape(who) for who in instances))
    found: list[RawSeries] = []
    for name in names:
        asked = selector(name, (*matchers, only))
        found += api.samples(asked, window, 4 * len(instances), scrape_seconds)
    return found


def _by_instance(raw: Iterable[RawSeries]) -> dict[str, list[RawSeries]]:
    found: dict[str, list[RawSeries]] = defaultdict(list)
    for one in raw:
        found[one.labels.get("instance", "")].append(one)
    return found
