"""The metrics lie: frozen, lost, doubled or impossible.

An engine publishes only when it steps, so still gauges can mean a silent engine. A page on which not
even the CPU time of serving it moves is no page of a living process.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.changes import Outage
from diag.detectors.cues import PRESENT, Reach, stated
from diag.detectors.standstill import asked_of, held_up, seen_ratio, standstills
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
        yield from _traffic(view, window, instance)
        yield Reach({"targets": tuple(sorted({where for where, _ in stalls}))})
        return
    lost = list(_lost(view))
    if lost:
        yield from lost
        return
    left = list(_left_over(view))
    yield from left or [_alive(view)]


def _left_over(view: View) -> Iterator[Output]:
    """Gauges of an engine that has not stepped since everybody left: it holds requests that no client has.

    Tokens are flat and nothing moves, as in a stall; but nobody waits, or clients are served all the same."""
    if view.workload is None:
        return
    requests = view.workload.requests
    for still in standstills(view):
        sent, served = asked_of(requests, still, view.case.step_seconds)
        if sent and served > 0.5 * sent:
            text = f"{still.instance} shows {still.running:.0f} running requests and no token, while clients got {served} first tokens from it"
        elif not sent and not held_up(requests, still).any():
            text = f"{still.instance} shows {still.running:.0f} running and {still.waiting:.0f} waiting requests for {quantity(still.window.seconds, 'seconds')}, and no client has one there"
        else:
            continue
        yield stated("left_over", "running_requests", True, text, onset=still.window.start)
        if served:
            yield from _traffic(view, still.window, still.instance)
        yield Reach({"targets": (still.instance,)})
        return


def _alive(view: View) -> Output:
    """The contrary: pages that move, for most of the incident, and agree with what clients saw."""
    moving, tokens = view.fleet.get("engine_cpu_ratio"), view.fleet.get("first_tokens_per_second")
    if moving is None or tokens is None or moving.during <= 0:
        return stated("frozen", "engine_cpu_ratio", False, "no page is seen to stand still")
    text = (
        f"the engines' pages keep moving: {quantity(tokens.during, 'per second')} first tokens counted, "
        f"{quantity(moving.during, 'ratio')} of a CPU used by the server"
    )
    # Every engine must be seen: a fleet's sum goes on when one of its pages has nothing to say.
    whole = min(seen_ratio(view, "engine_cpu_ratio"), seen_ratio(view, "first_tokens_per_second")) >= PRESENT
    sure = whole and _agrees(view) and _all_answer(view)
    return stated("frozen", "engine_cpu_ratio", False, text, decisive=sure)


def _all_answer(view: View) -> bool:
    """Whether every target, exporters too, answers its scrapes: a collector that stalls is a fault as well."""
    ups = [s.within(view.spans.incident) for s in view.case.of("target_up")]
    return all(np.isfinite(up).any() and float(np.nan_to_num(up).mean()) >= PRESENT for up in ups)


def _lost(view: View) -> Iterator[Output]:
    """Scrapes that fail, or series that end, while the same process goes on serving."""
    began_anew = {c.target for c in view.changes if c.kind == "restart"}
    outages = [
        o
        for o in view.outages
        if o.target in view.engines and o.target not in began_anew and _seen_before(view, o)
    ]
    ended = _ended(view)
    if not outages and not ended:
        return
    if outages:
        longest = max(outages, key=lambda o: o.window.seconds)
        window, target = longest.window, longest.target
        everyone = {o.target for o in outages}
        text = f"{target} answered no scrape for {quantity(window.seconds, 'seconds')}, and was not restarted"
    else:
        target, window = ended[0]
        everyone = {where for where, _ in ended}
        known = "it answers its scrapes" if _up(view, target, window) else "nothing says that it is down"
        text = f"series of {target} end {quantity(window.seconds, 'seconds')} before the window does, though {known}"
    served = _served(view, window, target)
    # A page that is answered without the engine's series lies, whether anybody was served or not.
    told = not outages and _up(view, target, window)
    degree = 1.0 if served else 0.9 if told else 0.6
    yield stated("lost", "target_up", served is not False, text, degree=degree, onset=window.start)
    yield from _traffic(view, window, target)
    yield Reach({"targets": tuple(sorted(everyone))})


def _seen_before(view: View, outage: Outage) -> bool:
    """Whether the target answered earlier: one that is down from the start may be starting up."""
    before = Window(view.case.window.start, outage.window.start)
    ups = [s.within(before) for s in view.case.of("target_up") if s.labels.get("instance") == outage.target]
    return any(bool((up >= 0.5).any()) for up in ups)


def _ended(view: View) -> list[tuple[str, Window]]:
    """Engines whose gauges end for a tenth of the window or more (and longer than a few lost scrapes) while
    their target stays up, or is not even asked any more (it fell out of the scraper's list) though clients
    still get answers from it."""
    found: list[tuple[str, Window]] = []
    end = view.case.window.end
    least = max(view.case.window.seconds / 10, 2 * view.spans.look_back_seconds + view.case.step_seconds)
    for series in view.case.of("running_requests"):
        seen = series.times[np.isfinite(series.values)]
        where = series.labels.get("instance", "")
        if not len(seen) or end - float(seen[-1]) < least:
            continue
        window = Window(float(seen[-1]), end)
        if _up(view, where, window) or (_up(view, where, window) is None and _served(view, window, where)):
            found.append((where, window))
    return sorted(found, key=lambda pair: (pair[1].start, pair[0]))


def _up(view: View, target: str, window: Window) -> bool | None:
    """Whether a target answers its scrapes once its last look-back is over; None where nobody asks it."""
    silent = Window(window.start + 2 * view.spans.look_back_seconds, window.end)
    ups = [s.within(silent) for s in view.case.of("target_up") if s.labels.get("instance", "") == target]
    if not ups or not np.isfinite(ups[0]).any():
        return None
    # A lost scrape now and then is no dead target.
    return float(np.nanmean(ups[0])) >= PRESENT


def _answers(view: View, window: Window, target: str = "") -> tuple[int, int] | None:
    """Requests sent in ``window``, and answers that began in it (of the target, where records name it); None
    without records. Who asks an engine that is down may be answered by the next one, and later."""
    if view.workload is None:
        return None
    r = view.workload.requests
    here = r.instance == r.instances.index(target) if target in r.instances else np.ones(len(r), dtype=bool)
    # A gateway's records know when an answer ended, and not when it began.
    took = np.where(r.ttft > 0, r.ttft, np.where(r.failed | r.aborted, np.nan, r.duration))
    begun = r.ts + took
    return int((r.within(window) & here).sum()), int(
        ((begun >= window.start) & (begun <= window.end) & here).sum()
    )


def _served(view: View, window: Window, target: str = "") -> bool | None:
    """Whether clients were served as a rule while nothing was seen of it; None without records."""
    counted = _answers(view, window, target)
    return None if counted is None else counted[1] > 0.5 * counted[0]


def _traffic(view: View, window: Window, target: str = "") -> Iterator[Output]:
    counted = _answers(view, window, target)
    if counted is None or not any(counted):
        return
    sent, begun = counted
    text = f"{begun} answers began for {sent} requests sent meanwhile; the page shows none"
    yield stated(
        "traffic", "first_tokens_per_second", begun > 0.5 * sent, text, during=float(begun), unit="requests"
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
