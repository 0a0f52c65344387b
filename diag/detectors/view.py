"""Everything a hypothesis may look at, prepared once.

A ``View`` holds the case, the two windows, the symptoms and every finding. Hypotheses only read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from diag.detectors.changes import Change, Outage, changes_of, outages_of
from diag.detectors.episodes import Episode
from diag.detectors.findings import Spans, fleet_series, judge_series, weight_signal
from diag.detectors.outside import outside_engine
from diag.detectors.workload import Workload, workload_of
from diag.model import Case, Finding, Floats, Series, Window
from diag.records.cohorts import Requests
from diag.signals import SIGNALS

__all__ = ["Phases", "Pin", "View", "view_of"]


@dataclass(frozen=True, slots=True)
class Phases:
    """Where the extra seconds of the mean first token are spent; None where it is not known.

    ``client``: what callers saw. ``engine``: what the engine measured. ``gap = client − engine``.
    ``front``: inside the engine's process but neither its queue nor its prefill (API server,
    tokeniser, a step that does not end)."""

    client: float | None
    engine: float | None
    gap: float | None
    queue: float | None
    prefill: float | None
    front: float | None

    @property
    def total(self) -> float | None:
        """The largest excess that is known."""
        known = [x for x in (self.client, self.engine) if x is not None]
        return max(known) if known else None

    def share(self, phase: str) -> float | None:
        """Share (0 … 1) of the excess that ``phase`` carries; None without a real excess."""
        value, total = getattr(self, phase), self.total
        if value is None or total is None or total < 0.05:
            return None
        return float(np.clip(value / total, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class Pin:
    """Requests running while others waited. ``share``: part of that time spent at ``ceiling``, the
    most that ever ran; it binds from four fifths on."""

    instance: str
    ceiling: float
    before_most: float
    share: float
    waiting: float
    kv_usage: float | None
    onset: float

    @property
    def binds(self) -> bool:
        """Whether this is a ceiling and not just a maximum."""
        return self.share >= 0.8


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The prepared case. ``fleet``: one finding a signal over the affected engines (or all);
    ``each``: one a series. ``affected``/``spared``: engine instances with and without symptoms.
    ``bad_before``: why a window in which nothing got worse is no quiet time all the same; else empty."""

    case: Case
    spans: Spans
    episodes: tuple[Episode, ...]
    onset: float
    affected: tuple[str, ...]
    spared: tuple[str, ...]
    fleet: Mapping[str, Finding]
    each: Mapping[str, tuple[Finding, ...]]
    workload: Workload | None
    phases: Phases
    changes: tuple[Change, ...]
    outages: tuple[Outage, ...]
    pins: tuple[Pin, ...]
    bad_before: str = ""

    @property
    def engines(self) -> frozenset[str]:
        """All engine instances that are seen, slow or not."""
        return frozenset(_engines_of(self.case))

    @property
    def symptomatic(self) -> bool:
        """Whether anybody is worse off."""
        return bool(self.episodes)

    def finding(self, *names: str) -> Finding | None:
        """The first of ``names`` that was measured: records for request-scope names, else metrics."""
        for name in names:
            found = self.workload.findings.get(name) if self.workload else None
            found = found or self.fleet.get(name)
            if found is not None:
                return found
        return None

    def fact(self, name: str, at: float | None = None) -> str | None:
        """Value of a fact at a time (default: the end of the incident); None when never stated."""
        when = self.spans.incident.end if at is None else at
        best: str | None = None
        for fact in self.case.facts_named(name):
            if fact.since is None or fact.since <= when + 1:
                best = fact.value
        return best

    def concerns(self, target: str) -> bool:
        """Whether a target may be one of the slow engines: it is one, or it is no engine that is fine."""
        host = target.split(":")[0]
        slow = any(target == i or host == i.split(":")[0] for i in self.affected)
        fine = any(target == i or host == i.split(":")[0] for i in self.spared)
        return slow or not fine

    def engines_named(self, targets: Iterable[str]) -> tuple[str, ...]:
        """Targets of events as engine instances where they name one ("vllm-0" is "vllm-0:8000")."""
        known = {i.split(":")[0]: i for i in (*self.affected, *self.spared)}
        return tuple(dict.fromkeys(known.get(t.split(":")[0], t) for t in targets if t))

    def near_onset(self, change: Change, before_seconds: float = 600.0) -> bool:
        """Whether a change came shortly before the symptom (two steps of slack after it)."""
        slack = max(2 * self.case.step_seconds, self.spans.look_back_seconds, 15.0)
        return self.onset - before_seconds <= change.time <= self.onset + slack


def view_of(case: Case, spans: Spans, episodes: tuple[Episode, ...], requests: Requests | None) -> View:
    """Compute every finding once."""
    affected, spared = _contrast(case, episodes)
    chosen = affected or None
    fleet: dict[str, Finding] = {}
    each: dict[str, tuple[Finding, ...]] = {}
    for name in case.series:
        if name not in SIGNALS:
            continue
        judged = [judge_series(s, spans, _own_weights(case, s)) for s in case.of(name)]
        each[name] = tuple(found for found in judged if found is not None)
        merged = fleet_series(case, name, chosen if SIGNALS[name].scope == "engine" else None)
        if merged is not None:
            found = judge_series(merged, spans, _fleet_weights(case, name, chosen))
            if found is not None:
                fleet[name] = found
    work = workload_of(requests, spans.baseline, spans.settled) if requests is not None else None
    outside = outside_engine(case, requests, spans) if requests is not None else None
    onset = spans.incident.start
    return View(
        case, spans, episodes, onset, affected, spared, fleet, each, work, _phases(fleet, work, outside),
        changes_of(case), outages_of(case), _pins(case, spans),
    )  # fmt: skip


def _contrast(case: Case, episodes: tuple[Episode, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    known = _engines_of(case)
    hit = {e.course.scope["instance"] for e in episodes if e.course.scope.get("instance")} & known
    return tuple(sorted(hit)), tuple(sorted(known - hit)) if hit else ()


def _engines_of(case: Case) -> set[str]:
    tell = (*case.of("running_requests"), *case.of("ttft_seconds_mean"))
    return {s.labels["instance"] for s in tell if s.labels.get("instance")}


def _own_weights(case: Case, series: Series) -> Floats | None:
    name = weight_signal(series.signal)
    if name is None:
        return None
    same = [s for s in case.of(name) if s.labels.get("instance") == series.labels.get("instance")]
    return same[0].values if same else None


def _fleet_weights(case: Case, name: str, instances: tuple[str, ...] | None) -> Floats | None:
    rate = weight_signal(name)
    merged = fleet_series(case, rate, instances) if rate is not None else None
    return merged.values if merged is not None else None


def _phases(
    fleet: Mapping[str, Finding], work: Workload | None, outside: tuple[float, float] | None
) -> Phases:
    def excess(name: str) -> float | None:
        found = fleet.get(name)
        return found.during - found.before if found is not None else None

    engine, queue, prefill = (
        excess(n) for n in ("ttft_seconds_mean", "queue_seconds_mean", "prefill_seconds_mean")
    )
    client = gap = None
    if work is not None:
        seen = work.findings.get("client_ttft_seconds")
        client = seen.during - seen.before if seen is not None else None
        measured = work.findings.get("client_gap_seconds")
        if measured is not None:
            gap = measured.during - measured.before
        elif outside is not None:
            gap, client = outside[0], sum(outside)
    front = None
    if engine is not None and queue is not None and prefill is not None:
        front = max(engine - max(queue, 0.0) - max(prefill, 0.0), 0.0)
    return Phases(client, engine, gap, queue, prefill, front)


def _pins(case: Case, spans: Spans) -> tuple[Pin, ...]:
    """How each instance ran while somebody waited: at one ceiling, or not."""
    found: list[Pin] = []
    for running in case.of("running_requests"):
        where = running.labels.get("instance", "")
        waiting = [s for s in case.of("waiting_requests") if s.labels.get("instance", "") == where]
        if not waiting:
            continue
        pin = _pin(running, waiting[0], case, spans.incident, spans.baseline, where)
        if pin is not None:
            found.append(pin)
    return tuple(found)


def _pin(
    running: Series, waiting: Series, case: Case, incident: Window, baseline: Window, where: str
) -> Pin | None:
    inside = (running.times >= incident.start) & (running.times <= incident.end)
    queued = inside & (np.nan_to_num(waiting.values) >= 1) & np.isfinite(running.values)
    if queued.sum() < 5:
        return None
    ceiling = float(np.max(running.values[queued]))
    at_ceiling = running.values[queued] >= ceiling - 0.5
    quiet = running.within(baseline)
    usage = [
        s.within(incident) for s in case.of("kv_cache_usage_ratio") if s.labels.get("instance", "") == where
    ]
    kv = float(np.nanmax(usage[0])) if usage and np.isfinite(usage[0]).any() else None
    before_most = float(np.nanmax(quiet)) if np.isfinite(quiet).any() else float("nan")
    return Pin(
        instance=where,
        ceiling=ceiling,
        before_most=before_most,
        share=float(at_ceiling.mean()),
        waiting=float(np.nanmean(waiting.values[queued])),
        kv_usage=kv,
        onset=float(running.times[queued][0]),
    )
