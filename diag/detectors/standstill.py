"""Stretches in which an engine holds requests and makes not one token, and who asked meanwhile.

A prefill of a giant is silent too: only what lasts longer than any step counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.silence import same_instance, silence_of
from diag.detectors.view import View
from diag.model import Floats, Series, Window
from diag.records.cohorts import Flags, Requests

__all__ = ["Standstill", "asked_of", "held_up", "seen_ratio", "standstills"]

_LEAST_SECONDS = 45.0  # the longest prefill of one prompt that a service would still call service


@dataclass(frozen=True, slots=True)
class Standstill:
    """``running``/``waiting``: medians over it; ``parked``: median of those deferred, None where the engine
    does not tell them apart. ``kv_usage``: the largest in its second half, 0 … 1; None when not known.
    ``up_ratio``: share of scrapes that were answered; None without ``up``. ``frozen``: the page repeats
    itself down to the CPU time of the process that serves it. ``gauges_move``: running, waiting or the pool
    change while no token comes: an engine that publishes them still steps. ``ended``: tokens flow again
    before the window ends."""

    instance: str
    window: Window
    running: float
    waiting: float
    parked: float | None
    kv_usage: float | None
    up_ratio: float | None
    frozen: bool
    gauges_move: bool
    ended: bool


def standstills(view: View) -> tuple[Standstill, ...]:
    """All that overlap the incident or end just before it, longest first: what waited shows in the clocks
    only once it is answered, so that the harm may be seen when the silence is over."""
    found: list[Standstill] = []
    for running in view.case.of("running_requests"):
        found.extend(_of_instance(view, running))
    late = view.spans.look_back_seconds + 2 * view.case.step_seconds
    inside = [s for s in found if s.window.end > view.spans.incident.start - late]
    return tuple(sorted(inside, key=lambda s: -s.window.seconds))


def _of_instance(view: View, running: Series) -> list[Standstill]:
    states = silence_of(view.case, running)
    if states is None:
        return []
    waiting = same_instance(view.case, "waiting_requests", running.labels.get("instance", ""))
    # A lost scrape neither ends a silence nor makes one.
    return [s for s in (_told(view, running, waiting, run) for run in _runs(states)) if s is not None]


def _runs(states: Floats) -> list[tuple[int, int]]:
    """First and last index of each run of ones; unknown points inside a run are bridged."""
    points = np.flatnonzero(np.isfinite(states))
    runs: list[tuple[int, int]] = []
    open_at: int | None = None
    last = -1
    for i in points:
        if states[i] > 0:
            open_at = int(i) if open_at is None else open_at
            last = int(i)
        elif open_at is not None:
            runs.append((open_at, last))
            open_at = None
    if open_at is not None:
        runs.append((open_at, last))
    return runs


def _told(view: View, running: Series, waiting: Series | None, run: tuple[int, int]) -> Standstill | None:
    case, where = view.case, running.labels.get("instance", "")
    first, last = float(running.times[run[0]]), float(running.times[run[1]])
    window = Window(max(first - view.spans.look_back_seconds, case.window.start), last)
    if window.seconds < max(_LEAST_SECONDS, view.spans.look_back_seconds + case.step_seconds):
        return None
    inside = slice(run[0], run[1] + 1)
    late = slice((run[0] + run[1] + 1) // 2, run[1] + 1)
    usage, up, parked = (
        same_instance(case, n, where)
        for n in ("kv_cache_usage_ratio", "target_up", "waiting_deferred_requests")
    )
    stalls = case.page_stalls.get(where, ())
    frozen = any(s.start < window.end and s.end > first for s in stalls)
    gauges = [s.values[late] for s in (running, waiting, usage) if s is not None]
    ended = last < case.window.end - 2 * case.step_seconds
    return Standstill(
        where, window, _middle(running.values[inside]),
        _middle(waiting.values[inside]) if waiting is not None else 0.0,
        _middle(parked.values[late]) if parked is not None else None,
        _most(usage.values[late]) if usage is not None else None,
        _mean(up.values[inside]) if up is not None else None,
        frozen, any(_moves(values) for values in gauges), ended,
    )  # fmt: skip


def _moves(values: Floats) -> bool:
    known = values[np.isfinite(values)]
    return len(known) >= 2 and float(np.ptp(known)) > 1e-6


def _middle(values: Floats) -> float:
    return float(np.nanmedian(values)) if np.isfinite(values).any() else 0.0


def _most(values: Floats) -> float | None:
    return float(np.nanmax(values)) if np.isfinite(values).any() else None


def _mean(values: Floats) -> float | None:
    return float(np.nanmean(values)) if np.isfinite(values).any() else None


def seen_ratio(view: View, *names: str) -> float:
    """Of the slow engines (of all, when none stands out) the least share of the incident's points at which
    one of ``names`` was there; 0 where an engine shows none of them."""
    shares = [
        max(
            (_finite_ratio(same_instance(view.case, n, where), view.spans.incident) for n in names),
            default=0.0,
        )
        for where in view.affected or sorted(view.engines)
    ]
    return min(shares, default=0.0)


def _finite_ratio(series: Series | None, window: Window) -> float:
    values = series.within(window) if series is not None else np.empty(0)
    return float(np.isfinite(values).mean()) if len(values) else 0.0


def held_up(requests: Requests, still: Standstill) -> Flags:
    """Requests that were there without a first token at some time in the silence: open ones and ones that
    left or failed too. Those of other instances are left out where records name them."""
    infinity = np.inf
    first = requests.ts + np.where(np.isfinite(requests.ttft), requests.ttft, infinity)
    gone = requests.ts + np.where(np.isfinite(requests.duration), requests.duration, infinity)
    flags: Flags = (requests.ts <= still.window.end) & (np.minimum(first, gone) > still.window.start)
    if still.instance in requests.instances:
        flags &= (requests.instance == requests.instances.index(still.instance)) | (requests.instance < 0)
    return flags


def asked_of(requests: Requests, still: Standstill, slack_seconds: float) -> tuple[int, int]:
    """Requests sent to the instance in the silence (to any, where records name none), and how many of
    them got a first token before it ended. ``slack_seconds``: kept away from both ends."""
    start, end = still.window.start + slack_seconds, still.window.end - slack_seconds
    sent = (requests.ts >= start) & (requests.ts <= end)
    if still.instance in requests.instances:
        code = requests.instances.index(still.instance)
        # Who never got an answer may never have learnt which instance it was for.
        sent &= (requests.instance == code) | (requests.instance < 0)
    first = requests.ts + np.where(np.isfinite(requests.ttft), requests.ttft, np.inf)
    return int(sent.sum()), int((sent & (first <= end)).sum())
