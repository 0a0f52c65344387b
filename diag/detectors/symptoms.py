"""Is anybody worse off, since when, and who? Asked before any cause is considered.

A *course* is one symptom of one group over time: an engine's first-token tail, a request cohort's
median, the share of aborted requests. A course is an incident when it lastingly exceeds its own
quiet level by both a ratio and an amount that a user would notice. The amounts follow the classic
response-time limits (0.1 s instantaneous, 1 s flow of thought; Nielsen, Usability Engineering,
1993): 20 ms that become 40 ms are no incident, whatever the ratio.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from diag.detectors.findings import weight_signal
from diag.model import Case, Floats, Series, Symptom, Window
from diag.stats.changepoint import change_points, exceedance_onset, long_run_variance
from diag.stats.robust import mad_sigma
from diag.stats.shift import block_means

__all__ = ["Course", "Episode", "Limit", "begins_bad", "find_episode", "metric_courses", "symptom_of"]

_REFERENCE_SHARE = 0.25  # of the window, taken as quiet until an onset is found
_SIGMAS = 3.0
_SUSTAINED = 0.7  # of the points of an incident that does not come and go
_STEP_POINTS = 96  # enough to place an early step; change points cost their square


@dataclass(frozen=True, slots=True)
class Limit:
    """How far a course must go to be felt: by ``ratio`` *and* by ``amount`` in its unit."""

    ratio: float
    amount: float
    down: bool = False


LIMITS: Mapping[str, Limit] = {
    "ttft_seconds_p95": Limit(1.5, 0.5),
    "ttft_seconds_p50": Limit(1.5, 0.3),
    "ttft_seconds_mean": Limit(1.5, 0.3),
    "e2e_seconds_mean": Limit(1.5, 1.0),
    "inter_token_seconds_mean": Limit(1.35, 0.010),
    "http_errors_per_second": Limit(1.5, 0.05),
    "rejected_requests_per_second": Limit(1.5, 0.05),
    "aborted_ratio": Limit(1.5, 0.15),
    "error_ratio": Limit(1.5, 0.10),
    "unfinished_ratio": Limit(1.5, 0.25),
    "standstill_ratio": Limit(1.5, 0.5),
}


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """One symptom of one group. ``overlap``: neighbouring points that share samples."""

    signal: str
    scope: Mapping[str, str]
    unit: str
    times: Floats
    values: Floats
    overlap: int
    weights: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """A course that went bad: from ``onset`` to ``end``; ``strength`` in multiples of the limit;
    points above ``threshold`` are bad."""

    course: Course
    onset: float
    end: float
    before: float
    during: float
    strength: float
    threshold: float


def metric_courses(case: Case, look_back_seconds: float) -> Iterator[Course]:
    """The symptom courses that the engines' own metrics give, one for each instance and signal."""
    overlap = max(1, round(look_back_seconds / case.step_seconds))
    for name in LIMITS:
        for series in case.of(name):
            weights = None
            if (rate := weight_signal(name)) is not None:
                same = [s for s in case.of(rate) if s.labels.get("instance") == series.labels.get("instance")]
                weights = same[0].values if same else None
            scope = {k: v for k, v in series.labels.items() if v}
            yield Course(name, scope, _unit(name), series.times, series.values, overlap, weights)
    yield from _unfinished(case, overlap)
    yield from _standstill(case, look_back_seconds, overlap)


def _unit(name: str) -> str:
    if name.endswith("_ratio"):
        return "ratio"
    return "per second" if name.endswith("_per_second") else "seconds"


def _unfinished(case: Case, overlap: int) -> Iterator[Course]:
    """Share of HTTP answers that the engine never counted as finished: clients that left. The
    engine's own abort counter stays at zero for them (vLLM V1)."""
    for http in case.of("http_requests_per_second"):
        for done in case.of("finished_requests_per_second"):
            if done.labels.get("instance") != http.labels.get("instance"):
                continue
            with np.errstate(invalid="ignore", divide="ignore"):
                share = np.clip((http.values - done.values) / http.values, 0.0, 1.0)
            share = np.where(http.values > 0, share, np.nan)
            scope = {k: v for k, v in http.labels.items() if v}
            yield Course("unfinished_ratio", scope, "ratio", http.times, share, overlap)


def _standstill(case: Case, look_back_seconds: float, overlap: int) -> Iterator[Course]:
    """1 where an engine holds requests and not one token was read or written over a whole look-back, else 0.

    A service that stops leaves no slow first token, only silence; it began where the silent look-back
    did. A page that repeats itself down to its
    process' own counters says nothing about the engine, so those stretches are left out."""
    for running in case.of("running_requests"):
        tokens = [
            s.values
            for name in ("generation_tokens_per_second", "prompt_tokens_per_second")
            for s in case.of(name)
            if s.labels.get("instance") == running.labels.get("instance")
        ]
        if not tokens:
            continue
        held = np.nan_to_num(running.values) + _held_back(case, running)
        still = np.where(held > 0, (np.nansum(tokens, axis=0) <= 0).astype(np.float64), 0.0)
        known = np.isfinite(running.values) & np.isfinite(tokens).any(axis=0)
        for stall in case.page_stalls.get(running.labels.get("instance", ""), ()):
            known &= ~((running.times >= stall.start) & (running.times <= stall.end))
        scope = {k: v for k, v in running.labels.items() if v}
        values = np.where(known, still, np.nan)
        begun = running.times - look_back_seconds + case.step_seconds
        yield Course("standstill_ratio", scope, "ratio", begun, values, overlap)


def _held_back(case: Case, running: Series) -> Floats:
    """Requests that wait at the same engine; 0 where that is not known."""
    same = [
        s for s in case.of("waiting_requests") if s.labels.get("instance") == running.labels.get("instance")
    ]
    held: Floats = np.nan_to_num(same[0].values) if same else np.zeros_like(running.values)
    return held


def find_episode(course: Course, window: Window, baseline: Window | None = None) -> Episode | None:
    """The lasting bad stretch of a course inside ``window``, or None.

    ``baseline``: what is known to be quiet; without it the first quarter is taken as quiet, and once
    an onset is found everything before it."""
    limit = LIMITS[course.signal]
    inside = (course.times >= window.start) & (course.times <= window.end) & np.isfinite(course.values)
    times, values = course.times[inside], course.values[inside]
    if len(times) < 6:
        return None
    need, of = max(3, int(np.ceil(1.6 * course.overlap))), max(8, 12 * course.overlap)
    quiet = _reference(times, values, baseline, limit, course.overlap)
    at: int | None = None
    for _ in range(2):
        if quiet.sum() < 3:
            return None
        bad = values > _threshold(values[quiet], limit)
        at = exceedance_onset(bad & (~quiet | (baseline is not None)), need=need, of=of)
        if at is None:
            return None
        at = _dense_start(bad, at, course.overlap + 1, 4 * course.overlap)
        if baseline is None:
            quiet = np.arange(len(times)) < max(at - course.overlap, 3)
    assert at is not None
    start = _backdate(values, quiet, at, limit)
    last = int(np.flatnonzero(bad)[-1])
    tail = len(times) - 1 - last
    end = window.end if tail <= max(of, len(times) // 5) else float(times[last])
    span = (times >= times[start]) & (times <= end)
    before, during = float(np.mean(values[quiet])), float(np.mean(values[span]))
    strength = min(
        np.log(max(during, 1e-9) / max(before, 1e-9)) / np.log(limit.ratio), (during - before) / limit.amount
    )
    limit_value = _threshold(values[quiet], limit)
    return Episode(course, float(times[start]), end, before, during, float(strength), limit_value)


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


def _backdate(values: Floats, quiet: np.ndarray, at: int, limit: Limit) -> int:
    """A ramp is noticed late: walk back to where the course left its quiet level."""
    level = values[quiet]
    soft = max(
        float(np.quantile(level, 0.9)),
        float(np.median(level)) + 0.25 * (_threshold(level, limit) - float(np.median(level))),
    )
    start = at
    while start > 0 and values[start - 1] > soft and not quiet[start - 1]:
        start -= 1
    return start


def symptom_of(episode: Episode) -> Symptom:
    """The verdict's record of an episode."""
    course = episode.course
    return Symptom(
        course.signal, dict(course.scope), episode.before, episode.during, course.unit, episode.onset
    )
