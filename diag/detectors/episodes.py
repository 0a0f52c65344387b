"""Did a course go bad for good, and since when?

Three questions, each with its own guard. Is it bad enough: beyond a ratio, an amount and its own
noise, often enough in a row? Did the level really change: is the best split into before and after
clear of the long-run variance on both sides (a slow wave is no step)? And when: at that split, or
where a climb to it began; a bump long before it is not the onset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from diag.detectors.symptoms import LIMITS, Course, Limit
from diag.model import Floats, Symptom, Window
from diag.stats.changepoint import change_points, dominant_step, exceedance_onset, long_run_variance
from diag.stats.robust import mad_sigma
from diag.stats.shift import block_means

__all__ = ["Episode", "begins_bad", "common_onset", "find_episode", "symptom_of", "weight_of"]

_REFERENCE_SHARE = 0.25  # of the window, taken as quiet until an onset is found
_SIGMAS = 3.0
_SUSTAINED = 0.7  # of the points of an incident that does not come and go
_MOST = 0.8  # of the points of a climb lie above the quiet level
_STEP_POINTS = 96  # enough to place an early step; change points cost their square
_TOGETHER = 8  # grid steps between onsets that belong together
_WEIGHTY = 0.25  # of the heaviest group's weight: an earlier group that light is another matter
_BEYOND = 4.0  # times the longest wait until then
_CLEAREST = 25.0
_PLAIN = 6.0  # standard errors that need no point beyond the noise: quiet windows hardly reach it
_CLEAR = 4.0  # standard errors: dozens of courses are looked at, and each split is the best of hundreds


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """A course that went bad: from ``onset`` to ``end``; ``strength`` in multiples of the limit;
    ``score``: how clear the step is, in standard errors; points above ``threshold`` are bad."""

    course: Course
    onset: float
    end: float
    before: float
    during: float
    strength: float
    threshold: float
    score: float


def find_episode(course: Course, window: Window, baseline: Window | None = None) -> Episode | None:
    """The lasting bad stretch of a course inside ``window``, or None.

    ``baseline``: what is known to be quiet; without it the first quarter is taken as quiet, and once
    an onset is found everything before it."""
    limit = LIMITS[course.signal]
    inside = (course.times >= window.start) & (course.times <= window.end) & np.isfinite(course.values)
    times, values = course.times[inside], course.values[inside]
    if len(times) < 6:
        return None
    quiet = _reference(times, values, baseline, limit, course.overlap)
    lasting = _Lasting(max(3, int(np.ceil(1.6 * course.overlap))), max(8, 12 * course.overlap))
    if limit.fact:
        lasting = _Lasting(2, len(values))
    at = _exceeds(values, quiet, limit, lasting, baseline is None)
    score = _CLEAREST  # somebody marked what is quiet, or it is no sample: then nothing has to be proven
    if baseline is None and not limit.fact:
        last = _last_bad(values, quiet, limit)
        placed = None if at is None else _placed(values, last, limit, lasting, course.overlap)
        placed = (
            placed or _shifted(values, limit, course.overlap) or _unheard_of(values, limit, course.overlap)
        )
        if placed is None:
            return None
        at, score = placed
        quiet = np.arange(len(times)) < max(at - course.overlap, 3)
    if at is None:
        return None
    return _episode(course, times, values, _Found(at, score, quiet, lasting), limit, window)


@dataclass(frozen=True, slots=True)
class _Lasting:
    """``need`` bad points among ``of`` make it last."""

    need: int
    of: int


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Where it goes bad, how clear that is, which points are quiet, and what lasting means."""

    at: int
    score: float
    quiet: np.ndarray
    lasting: _Lasting


def _episode(
    course: Course, times: Floats, values: Floats, found: _Found, limit: Limit, window: Window
) -> Episode | None:
    at, quiet = found.at, found.quiet
    last = _last_bad(values, quiet, limit)
    if last < at:
        return None
    tail = len(times) - 1 - last
    end = window.end if tail <= max(found.lasting.of, len(times) // 5) else float(times[last])
    span = (times >= times[at]) & (times <= (times[last] if limit.fact else end))
    before, during = float(np.mean(values[quiet])), float(np.mean(values[span]))
    strength = min(
        np.log(max(during, 1e-9) / max(before, 1e-9)) / np.log(limit.ratio), (during - before) / limit.amount
    )
    if limit.fact:
        strength = max(strength, 1.0)
    threshold = _threshold(values[quiet], limit)
    return Episode(course, float(times[at]), end, before, during, float(strength), threshold, found.score)


def _last_bad(values: Floats, quiet: np.ndarray, limit: Limit) -> int:
    bad = np.flatnonzero(values > _threshold(values[quiet], limit)) if quiet.any() else np.array([])
    return int(bad[-1]) if len(bad) else -1


def _shifted(values: Floats, limit: Limit, overlap: int) -> tuple[int, float] | None:
    """Where the level rises plainly and for good, though most points of both levels overlap; how plainly."""
    step = dominant_step(_scaled(values, limit), min_size=max(3, 3 * overlap))
    if step is None or step.score < _PLAIN or step.at < len(values) // 4:
        return None
    return step.at, step.score


def _unheard_of(values: Floats, limit: Limit, overlap: int) -> tuple[int, float] | None:
    """Where waits begin, however rare, that are many times as long as any before.

    How often they come is not known, so they must be several events, not one smeared over a look-back."""
    first = len(values) // 4
    longest = np.maximum.accumulate(values)[first - 1 : -1]
    bar = np.maximum(_BEYOND * longest, longest + _BEYOND * limit.amount)
    for at in first + np.flatnonzero(values[first:] > bar):
        if int((values[at:] > bar[at - first]).sum()) > 2 * overlap + 1:
            return int(at), _PLAIN
    return None


def _placed(
    values: Floats, last: int, limit: Limit, lasting: _Lasting, overlap: int
) -> tuple[int, float] | None:
    """Where the course goes bad, and how clear that is; None when its level does not really change."""
    step = dominant_step(_scaled(values[: last + 1], limit))
    if last < 0 or step is None or step.score < _CLEAR:
        return None
    quiet = np.arange(len(values)) < max(step.at - overlap, 3)
    at = _exceeds(values, quiet, limit, lasting, True)
    if at is None:
        return None
    bad = values > _threshold(values[quiet], limit)
    at = _dense_start(bad, at, overlap + 1, 4 * overlap)
    first = _stall_before(values, at, bad, max(2, overlap - 1))
    return (_backdate(values, at, limit, overlap) if first is None else first), step.score


def _stall_before(values: Floats, at: int, bad: np.ndarray, need: int) -> int | None:
    """First index of a stall before ``at`` that is as bad as what follows and beyond anything before it.

    Stalls may be rare at first: one many times as long as the longest wait until then is no chance, if it is
    no farther from the rest than twice as long as that lasts. The first quarter is quiet by assumption."""
    earliest = max(at - 2 * (len(values) - at), len(values) // 4, 3)
    if earliest >= at or not bad[at:].any():
        return None
    level = 0.5 * float(np.median(values[at:][bad[at:]]))
    found = exceedance_onset(values[earliest:at] > level, need=need, of=2 * need)
    if found is None:
        return None
    first = earliest + found
    return first if level > _BEYOND * float(np.max(values[:first])) else None


def _exceeds(values: Floats, quiet: np.ndarray, limit: Limit, lasting: _Lasting, free: bool) -> int | None:
    if quiet.sum() < 3:
        return None
    bad = values > _threshold(values[quiet], limit)
    return exceedance_onset(bad & (~quiet | (not free)), need=lasting.need, of=lasting.of)


def _scaled(values: Floats, limit: Limit) -> Floats:
    """Seconds as logarithms, since waits spread by factors; shares as they are."""
    if limit.share:
        return values
    logs: Floats = np.log(np.maximum(values, 1e-3 * max(float(np.max(values)), 1e-9)))
    return logs


def _dense_start(bad: np.ndarray, at: int, need: int, gap: int) -> int:
    """Where a sustained incident begins: a blip long before it, one event smeared over the look-back,
    is not its onset. Where stalls stay rare throughout, the first one is.

    The first cluster (no more than ``gap`` good points inside) of ``need`` bad points counts, if from
    there to the last bad point most are bad; else ``at``."""
    points = np.flatnonzero(bad)
    points = points[points >= at]
    for cluster in np.split(points, np.flatnonzero(np.diff(points) > gap) + 1):
        if len(cluster) >= need:
            start = int(cluster[0])
            sustained = float(bad[start : points[-1] + 1].mean()) >= _SUSTAINED
            return start if sustained else at
    return at


def begins_bad(course: Course, window: Window) -> bool:
    """Whether the course is bad when the window opens and quiet when it closes: its onset lies before."""
    times = window.start + window.end - course.times[::-1]
    mirrored = Course(course.signal, course.scope, course.unit, times, course.values[::-1], course.overlap)
    episode = find_episode(mirrored, window)
    return episode is not None and episode.strength >= 1 and episode.end >= window.end


def _reference(
    times: Floats, values: Floats, baseline: Window | None, limit: Limit, overlap: int
) -> np.ndarray:
    """Which points count as quiet before an onset is known."""
    if baseline is not None:
        marked: np.ndarray = (times >= baseline.start) & (times <= baseline.end)
        return marked
    count = max(6, int(len(times) * _REFERENCE_SHARE))
    step = _early_step(values, limit, overlap)
    if step is not None:
        count = min(count, step)
    first: np.ndarray = np.arange(len(times)) < count
    return first


def _early_step(values: Floats, limit: Limit, overlap: int) -> int | None:
    """Where the level first steps up by the limit's ratio, so that an incident that began early in the
    window does not pass for its quiet level. The noise is that of the lowest quarter.

    Only the first half can hold such a step; long courses are looked at in blocks of points."""
    half = values[: max(len(values) // 2, 16)]
    block = -(-len(half) // _STEP_POINTS)
    means = block_means(half, block) if block > 1 else half
    logs = np.log(np.maximum(means, 1e-3 * max(float(np.max(values)), 1e-9)))
    quarter = max(8, len(logs) // 4)
    if len(logs) < 2 * quarter or float(np.ptp(logs)) <= np.log(limit.ratio):
        return None
    starts = np.arange(0, len(logs) - quarter + 1, max(1, quarter // 4))
    quietest = min(starts, key=lambda s: float(np.mean(logs[s : s + quarter])))
    variance = long_run_variance(logs[quietest : quietest + quarter])
    # A level needs points that do not all share their samples.
    least = max(8, -(-2 * overlap // block))
    steps = [0, *change_points(logs, variance, min_size=least), len(logs)]
    levels = [float(np.mean(logs[i:j])) for i, j in pairwise(steps)]
    for at, before, after in zip(steps[1:], levels, levels[1:], strict=False):
        if after - before > np.log(limit.ratio):
            return at * block
    return None


def _threshold(quiet: Floats, limit: Limit) -> float:
    centre = float(np.median(quiet))
    # One stall among a handful of quiet points must not set the bar for all that follows.
    tail = float(np.quantile(quiet, 0.95 if len(quiet) >= 40 else 0.9 if len(quiet) >= 16 else 0.75))
    positive = quiet[quiet > 0]
    spread = mad_sigma(np.log(positive)) if len(positive) >= 4 else 0.0
    wild = centre * float(np.exp(min(_SIGMAS * spread, 2.0)))
    return max(centre * limit.ratio, centre + limit.amount, wild, tail * 1.25)


def _backdate(values: Floats, at: int, limit: Limit, overlap: int) -> int:
    """A climb is noticed late: walk back to where the course left its quiet level for good.

    Quiet is the first three quarters of what lies before, since the climb's own beginning may be in the rest;
    left for good is it where most points of two look-backs are above."""
    level = values[: max(3 * (at - overlap) // 4, 3)]
    centre = float(np.median(level))
    soft = max(float(np.quantile(level, 0.9)), centre + 0.25 * (_threshold(level, limit) - centre))
    above, width, start = values > soft, max(4, 2 * overlap), at
    while start > len(level) and np.mean(above[max(start - width, 0) : start]) >= _MOST:
        start -= 1
    while start < at and not above[start]:
        start += 1
    return start


def weight_of(episodes: Sequence[Episode]) -> float:
    """How much they say together: the clearness of each times its strength, neither without bounds."""
    return sum(min(e.score, _CLEAREST) * min(e.strength, 3.0) for e in episodes)


def common_onset(episodes: Sequence[Episode], step_seconds: float) -> float:
    """When the incident begins: the start of the first group of onsets, close together, that carries weight.

    One replica's slow quarter of an hour long before dozens of courses leave their level is not its onset.
    ``episodes``: at least one."""
    ordered = sorted(episodes, key=lambda e: e.onset)
    groups: list[list[Episode]] = [[ordered[0]]]
    for before, episode in pairwise(ordered):
        if episode.onset - before.onset > _TOGETHER * step_seconds:
            groups.append([])
        groups[-1].append(episode)
    weights = [weight_of(group) for group in groups]
    heavy = (g for g, w in zip(groups, weights, strict=True) if w >= _WEIGHTY * max(weights))
    return next(heavy)[0].onset


def symptom_of(episode: Episode) -> Symptom:
    """The verdict's record of an episode."""
    course = episode.course
    return Symptom(
        course.signal, dict(course.scope), episode.before, episode.during, course.unit, episode.onset
    )
