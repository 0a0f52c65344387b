"""How large an engine's KV pool is, what stays in it, and which prompts can never fit.

A pool that is used while nothing runs, or whose floor only rises, holds blocks for nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from diag.detectors.changes import Change
from diag.detectors.silence import same_instance
from diag.detectors.view import View
from diag.model import Floats, Series, Window
from diag.stats.robust import theil_sen

__all__ = ["Floor", "evicts_by", "floor_of", "number_of_fact", "pool_tokens", "use_around"]

_BLOCKS = 10
_FEWEST_BLOCKS = 5
_IDLE_POINTS = 3


@dataclass(frozen=True, slots=True)
class Floor:
    """The lowest use of the pool, block of time by block of time.

    ``early``/``late``: the floor in the first and the last quarter of the window, 0 … 1; ``unaccounted``:
    how much of ``late`` the requests that ran then do not explain at the rate of the first quarter;
    ``rising``: share of steps from block to block that do not go down; ``onset``: when it left its early
    level; ``idle``: use while nothing ran (the median of the last such points, the last of them
    at ``idle_at``), None where it never was idle; ``before_restart``: use just before the process that is
    judged began, None where it began before the window."""

    instance: str
    early: float
    late: float
    unaccounted: float
    rising: float
    onset: float | None
    idle: float | None = None
    idle_at: float | None = None
    before_restart: float | None = None


def number_of_fact(view: View, name: str, instance: str = "") -> float | None:
    """A numeric fact of an instance as it stood last (of any where none is named); None if never stated."""
    best: float | None = None
    for fact in view.case.facts_named(name):
        where = fact.labels.get("instance", "")
        if instance and where and where.split(":")[0] != instance.split(":")[0]:
            continue
        if fact.since is None or fact.since <= view.spans.incident.end + 1:
            try:
                best = float(fact.value)
            except ValueError:
                continue
    return best


def pool_tokens(view: View, instance: str = "") -> float | None:
    """Tokens that the KV pool holds; None where neither metrics nor start-up lines say it."""
    series = same_instance(view.case, "kv_capacity_tokens", instance)
    if series is not None and np.isfinite(series.values).any():
        return float(series.values[np.isfinite(series.values)][-1])
    stated = number_of_fact(view, "kv_capacity_tokens", instance)
    if stated is not None:
        return stated
    blocks, size = (number_of_fact(view, n, instance) for n in ("kv_blocks", "block_size_tokens"))
    return blocks * size if blocks is not None and size is not None else None


def use_around(view: View, moment: float) -> float | None:
    """The fullest pool of the slow engines around a moment, 0 … 1; None when not known. Prompts that share no
    blocks any more take more room: a pool that fills up after hits are lost is a consequence."""
    reach = view.spans.look_back_seconds + 2 * view.case.step_seconds
    around = Window(moment - reach, moment + reach)
    found = [
        series.within(around)
        for series in view.case.of("kv_cache_usage_ratio")
        if not view.affected or series.labels.get("instance") in view.affected
    ]
    known = [float(np.nanmax(values)) for values in found if np.isfinite(values).any()]
    return max(known, default=None)


def evicts_by(view: View, moment: float) -> bool:
    """Whether a slow engine had preempted before ``moment``, or does around it: its pool was full then,
    whatever a gauge shows between scrapes."""
    until = Window(view.case.window.start, moment + view.spans.look_back_seconds)
    return any(
        bool((series.within(until) > 0).any())
        for series in view.case.of("preemptions_per_second")
        if not view.affected or series.labels.get("instance") in view.affected
    )


def floor_of(view: View, instance: str) -> Floor | None:
    """The floor over the whole window (since the last restart); None when the use is not known, or requests
    last too long against the window for a floor to mean anything."""
    usage, running = (
        same_instance(view.case, n, instance) for n in ("kv_cache_usage_ratio", "running_requests")
    )
    if usage is None or running is None:
        return None
    began = [c.time for c in view.changes if _empties(c) and c.target == instance]
    span = Window(max([view.case.window.start, *began]), view.case.window.end)
    inside = (usage.times >= span.start) & (usage.times <= span.end)
    known = inside & np.isfinite(usage.values) & np.isfinite(running.values)
    blocks = _blocks(view, instance, span)
    if blocks is None or known.sum() < 2 * blocks:
        return None
    use, work = _lowest(view, usage, running, known, span, blocks)
    if len(use) < _FEWEST_BLOCKS:
        return None
    known_lengths = same_instance(view.case, "prompt_tokens_per_request_mean", instance) is not None
    floor = _judged(instance, use, work, span, blocks, pool_tokens(view, instance) if known_lengths else None)
    idle, idle_at = _idle(view, instance, usage, running, known)
    earlier = usage.values[(usage.times < span.start) & np.isfinite(usage.values)]
    before = float(np.median(earlier[-3:])) if began and len(earlier) else None
    return replace(floor, idle=idle, idle_at=idle_at, before_restart=before)


def _empties(change: Change) -> bool:
    """A new process begins with an empty pool, and a pool of another size is a new process'."""
    return change.kind == "restart" or change.signal in ("kv_blocks", "kv_capacity_tokens")


def _blocks(view: View, instance: str, span: Window) -> int | None:
    """How many blocks of time the window gives, each several answers long."""
    lasting = same_instance(view.case, "e2e_seconds_mean", instance)
    answer = 0.0
    if lasting is not None and np.isfinite(lasting.values).any():
        answer = float(np.nanmedian(lasting.values))
    count = int(min(_BLOCKS, span.seconds / max(3 * answer, 6 * view.case.step_seconds, 1.0)))
    return count if count >= _FEWEST_BLOCKS else None


def _lowest(
    view: View, usage: Series, running: Series, known: np.ndarray, span: Window, blocks: int
) -> tuple[Floats, Floats]:
    """Per block of time the lowest use, and the running requests × their length at that moment."""
    lengths = _lengths(view, usage.labels.get("instance", ""), len(usage.times))
    edges = np.linspace(span.start, span.end, blocks + 1)
    use, work = [], []
    for a, b in pairwise(edges):
        at = np.flatnonzero(known & (usage.times >= a) & (usage.times < b))
        if len(at):
            lowest = at[int(np.argmin(usage.values[at]))]
            use.append(float(usage.values[lowest]))
            work.append(float(running.values[lowest] * lengths[lowest]))
    return np.array(use), np.array(work)


def _lengths(view: View, instance: str, count: int) -> Floats:
    """Tokens that a running request holds on average, by time; 1 where lengths are not known."""
    total = np.zeros(count)
    for name, share in (("prompt_tokens_per_request_mean", 1.0), ("output_tokens_per_request_mean", 0.5)):
        series = same_instance(view.case, name, instance)
        if series is None or not np.isfinite(series.values).any():
            continue
        seen = np.isfinite(series.values)
        total += share * np.interp(series.times, series.times[seen], series.values[seen])
    return total if total.any() else np.ones(count)


def _judged(instance: str, use: Floats, work: Floats, span: Window, blocks: int, pool: float | None) -> Floor:
    quarter = max(1, len(use) // 4)
    early, late = float(np.median(use[:quarter])), float(np.median(use[-quarter:]))
    # Use per token of work at the start, or what the pool's size makes of it: what is taken beyond that later
    # is taken by nobody who runs. A pool that has just begun to fill tells no share.
    busy = (work > 0) & (use > 0)
    shares = (
        [float(np.median(use[:quarter][busy[:quarter]] / work[:quarter][busy[:quarter]]))]
        if busy[:quarter].any()
        else []
    )
    share = max([*shares, *([1.0 / pool] if pool else [])], default=None)
    # What runs explains its share, or where no share is known all of it; what does not run explains nothing.
    beyond = use - share * work if share is not None else np.where(work > 0, 0.0, use)
    steps = np.diff(use)
    rising = float((steps >= -0.01).mean())
    slope, _ = theil_sen(np.arange(len(use), dtype=np.float64), use)
    left = np.flatnonzero(use > early + 0.25 * max(late - early, 0.0))
    onset = None
    if slope > 0 and len(left) and late - early > 0.05:
        onset = span.start + span.seconds * max(int(left[0]) - 1, 0) / blocks
    unaccounted = float(np.median(beyond[-quarter:])) - max(float(np.median(beyond[:quarter])), 0.0)
    return Floor(instance, early, late, unaccounted, rising, onset)


def _idle(
    view: View, instance: str, usage: Series, running: Series, known: np.ndarray
) -> tuple[float | None, float | None]:
    """Use while nothing ran over a whole look-back (the gauge of use is a maximum over it), and when that was
    last seen. Waiting requests hold no blocks, parked ones may: those points are left out."""
    most = same_instance(view.case, "running_requests_max", instance) or running
    parked = same_instance(view.case, "waiting_deferred_requests", instance)
    nobody = known & (np.nan_to_num(most.values, nan=1.0) <= 0)
    if parked is not None:
        nobody &= np.nan_to_num(parked.values) <= 0
    if most is running:
        nobody &= np.concatenate([[False], nobody[:-1]])
    points = usage.values[nobody]
    if len(points) < _IDLE_POINTS:
        return None, None
    return float(np.median(points[-_IDLE_POINTS:])), float(usage.times[nobody][-1])
