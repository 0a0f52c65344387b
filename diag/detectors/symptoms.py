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

import numpy as np

from diag.detectors.changes import Outage, outages_of
from diag.detectors.findings import weight_signal
from diag.detectors.silence import same_instance, silence_of
from diag.model import Case, Floats

__all__ = ["LIMITS", "Course", "Limit", "metric_courses"]


@dataclass(frozen=True, slots=True)
class Limit:
    """How far a course must go to be felt: by ``ratio`` *and* by ``amount`` in its unit. ``share``: it is one
    (or a rate of what should not be at all), and rests at 0. ``fact``: it is never 1 by chance, so that being
    seen is all it needs."""

    ratio: float
    amount: float
    share: bool = False
    fact: bool = False


LIMITS: Mapping[str, Limit] = {
    "ttft_seconds_p95": Limit(1.5, 0.5),
    "ttft_seconds_p50": Limit(1.5, 0.3),
    "ttft_seconds_mean": Limit(1.5, 0.3),
    "gateway_wait_seconds_p95": Limit(1.5, 0.5),
    "gateway_wait_seconds_mean": Limit(1.5, 0.3),
    "e2e_seconds_mean": Limit(1.5, 1.0),
    "inter_token_seconds_mean": Limit(1.35, 0.010),
    "http_errors_per_second": Limit(1.5, 0.05, share=True),
    "rejected_requests_per_second": Limit(1.5, 0.05, share=True),
    "aborted_ratio": Limit(1.5, 0.15, share=True),
    "error_ratio": Limit(1.5, 0.10, share=True),
    "unfinished_ratio": Limit(1.5, 0.25, share=True),
    "standstill_ratio": Limit(1.5, 0.5, share=True, fact=True),
    "unreachable_ratio": Limit(1.5, 0.2, share=True, fact=True),
}

_DOWN_SECONDS = 75.0  # all in all: below that an engine that restarts is nobody's incident


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
    yield from _unreachable(case, look_back_seconds)


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
    did. A page that repeats itself down to its process' own counters says nothing about the engine, so
    those stretches are left out."""
    for running in case.of("running_requests"):
        silent = silence_of(case, running)
        if silent is None:
            continue
        repeats = np.zeros(len(silent), dtype=bool)
        for stall in case.page_stalls.get(running.labels.get("instance", ""), ()):
            repeats |= (running.times >= stall.start) & (running.times <= stall.end)
        scope = {k: v for k, v in running.labels.items() if v}
        values = np.where(repeats, np.nan, silent)
        begun = running.times - look_back_seconds + case.step_seconds
        yield Course("standstill_ratio", scope, "ratio", begun, values, overlap)


def _unreachable(case: Case, look_back_seconds: float) -> Iterator[Course]:
    """1 while an engine does not answer its scrapes, else 0; only for those that were away for long or often.

    Whoever is sent elsewhere meanwhile may feel nothing: what is lost is capacity. ``target_up`` is a mean
    over the look-back, so that it crosses one half when half of that is over."""
    engines = {s.labels.get("instance") for s in case.of("running_requests")}
    away: dict[str, list[Outage]] = {}
    for outage in outages_of(case):
        if outage.target in engines:
            away.setdefault(outage.target, []).append(outage)
    for target, outages in away.items():
        if sum(o.window.seconds + case.step_seconds for o in outages) <= _DOWN_SECONDS:
            continue
        up = same_instance(case, "target_up", target)
        assert up is not None  # its outages were found in it
        down = np.where(np.isfinite(up.values), 0.0, np.nan)
        for outage in outages:
            down[(up.times >= outage.window.start) & (up.times <= outage.window.end)] = 1.0
        begun = up.times - look_back_seconds / 2
        yield Course("unreachable_ratio", {"instance": target}, "ratio", begun, down, 1)
