"""The metrics lie: frozen, lost, doubled or impossible.

An engine publishes only when it steps, so still gauges can mean a silent engine. A page on which not
even the CPU time of serving it moves is no page of a living process.
"""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.cues import Reach, stated
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation, Window
from diag.quantities import quantity

CARD = Card(
    id="telemetry_fault",
    title="The metrics are frozen or lost, not the service",
    mechanism="What is scraped is no longer the engine's state: a cached or frozen page, a dead collector, renamed or doubled series. Dashboards and rules look at the past.",
    signs=("every value of a page is bit-identical over many scrapes, CPU time included", "clients or logs show traffic that counters do not", "series end while the target answers"),
    rules_out=("series move and agree with the requests that clients made",),
    look_alikes={"engine_stall": "tokens stop but the process lives: its CPU time moves", "engine_restart": "scrapes fail, then counters begin at zero"},
    mitigations=(
        Mitigation("Fetch the engine's own /metrics twice, ten seconds apart, past every proxy and cache: do the counters move?", True),
        Mitigation("Do not act on autoscaling or routing that reads these metrics until they move again.", True),
    ),
    next_check="curl the target's /metrics twice and diff; look for a cache or relay between scraper and engine.",
    chain=("target_up", "first_tokens_per_second", "generation_tokens_per_second"),
)  # fmt: skip

NEEDS = (("target_up", "first_tokens_per_second", "running_requests"),)


def examine(view: View) -> Iterator[Output]:
    """Frozen pages, traffic elsewhere, and series that ended."""
    stalls = [
        (i, w)
        for i, windows in view.case.page_stalls.items()
        for w in windows
        if w.end > view.spans.incident.start
    ]
    if stalls:
        instance, window = max(stalls, key=lambda pair: pair[1].seconds)
        text = f"the page of {instance} did not change in a single digit for {quantity(window.seconds, 'seconds')}, though every scrape succeeded"
        yield stated("frozen", "target_up", True, text, onset=window.start)
        yield from _traffic(view, window)
        yield Reach({"targets": (instance,)})
        return
    moving, tokens = view.fleet.get("engine_cpu_ratio"), view.fleet.get("first_tokens_per_second")
    alive = moving is not None and moving.during > 0
    text = "no page stands still"
    if alive and moving is not None and tokens is not None:
        text = (
            f"the engines' pages keep moving: {quantity(tokens.during, 'per second')} first tokens counted, "
            f"{quantity(moving.during, 'ratio')} of a CPU used by the server"
        )
    yield stated("frozen", "engine_cpu_ratio", False, text, decisive=alive and _agrees(view))


def _traffic(view: View, window: Window) -> Iterator[Output]:
    if view.workload is None:
        return
    r = view.workload.requests
    count = int(((r.ts >= window.start) & (r.ts <= window.end)).sum())
    served = int(((r.ts >= window.start) & (r.ts <= window.end) & (r.ttft > 0)).sum())
    if count:
        text = f"clients got {served} first tokens from {count} requests meanwhile; the page shows none"
        yield stated(
            "traffic", "first_tokens_per_second", served > 0, text, during=float(served), unit="requests"
        )


def _agrees(view: View) -> bool:
    """Whether the engines' count of first tokens is about what clients saw (when both are known)."""
    if view.workload is None:
        return True
    tokens = view.fleet.get("first_tokens_per_second")
    arrivals = view.workload.findings.get("arrivals_per_second")
    if tokens is None or arrivals is None:
        return True
    return tokens.during > 0.2 * arrivals.during
