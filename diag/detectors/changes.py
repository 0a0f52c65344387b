"""What changed by somebody's hand or by accident: deploys, configuration, restarts, dead targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from diag.model import Case, Fact, Series, Window

__all__ = ["Change", "Outage", "changes_of", "outages_of"]

_CAPACITY_FACTS = frozenset({
    "kv_blocks", "kv_capacity_tokens", "block_size_tokens", "max_num_seqs", "max_num_batched_tokens",
    "max_model_len_tokens", "prefix_caching", "chunked_prefill", "long_prefill_threshold_tokens",
    "engine_version", "model", "max_loras", "cuda_graphs", "cuda_graph_tokens_max", "speculative_decoding",
    "speculative_tokens", "full_prompt_reservation",
})  # fmt: skip
_MARKED_KINDS = frozenset({"deploy", "config", "restart", "maintenance"})


@dataclass(frozen=True, slots=True)
class Change:
    """``kind``: "event" (somebody marked it), "fact" (a setting differs), "restart" (a new process).

    ``signal`` names the fact or event kind; ``before``/``after`` are its values, "" where none."""

    time: float
    kind: str
    target: str
    signal: str
    before: str
    after: str
    text: str


@dataclass(frozen=True, slots=True)
class Outage:
    """A target that did not answer its scrapes for a while."""

    target: str
    window: Window
    scrapes: int


def changes_of(case: Case) -> tuple[Change, ...]:
    """All changes in the case's window, in time order."""
    outages = outages_of(case)
    found = [
        *_events(case),
        *(_since_outage(c, outages) for c in (*_facts(case), *_pools(case), *_restarts(case))),
    ]
    return tuple(sorted(found, key=lambda change: (change.time, change.kind, change.target)))


def _since_outage(change: Change, outages: tuple[Outage, ...]) -> Change:
    """A process that comes back changed was changed when it went away: users feel it from then on."""
    for outage in outages:
        reach = max(60.0, outage.window.seconds)
        if outage.target == change.target and outage.window.start <= change.time <= outage.window.end + reach:
            return replace(change, time=outage.window.start)
    return change


def _events(case: Case) -> Iterator[Change]:
    for event in case.events:
        if event.marked and event.kind in _MARKED_KINDS:
            yield Change(event.time, "event", event.target, event.kind, "", "", event.text)


def _facts(case: Case) -> Iterator[Change]:
    """A setting whose value differs from the one seen before on the same instance and source."""
    last: dict[tuple[str, str, str], Fact] = {}
    known = [fact for fact in case.facts if fact.name in _CAPACITY_FACTS]
    for fact in sorted(known, key=lambda f: (f.since is not None, f.since or 0.0)):
        where = fact.labels.get("instance", "")
        key = (fact.name, where, fact.source)
        earlier = last.get(key)
        last[key] = fact
        if earlier is None or earlier.value == fact.value or fact.since is None:
            continue
        if not case.window.contains(fact.since):
            continue
        text = f"{fact.name} {earlier.value} → {fact.value} on {where or 'the engine'} ({fact.source})"
        yield Change(fact.since, "fact", where, fact.name, earlier.value, fact.value, text)


def _pools(case: Case) -> Iterator[Change]:
    """A pool of another size, where the engine exports it as a number."""
    for series in case.of("kv_capacity_tokens"):
        seen = np.isfinite(series.values) & (series.values > 0)
        times, values = series.times[seen], series.values[seen]
        where = series.labels.get("instance", "")
        for i in np.flatnonzero(np.abs(np.diff(values)) > 0.01 * values[:-1]):
            before, after = f"{values[i]:.0f}", f"{values[i + 1]:.0f}"
            text = f"kv_capacity_tokens {before} → {after} on {where or 'the engine'}"
            yield Change(float(times[i + 1]), "fact", where, "kv_capacity_tokens", before, after, text)


def _restarts(case: Case) -> Iterator[Change]:
    for series in case.of("engine_start_time_seconds"):
        seen = np.isfinite(series.values)
        times, values = series.times[seen], series.values[seen]
        where = series.labels.get("instance", "")
        for i in np.flatnonzero(np.diff(values) > 1.0):
            started = float(values[i + 1])
            at = started if case.window.contains(started) else float(times[i + 1])
            yield Change(at, "restart", where, "engine_start_time_seconds", "", "", f"{where} started anew")


def outages_of(case: Case) -> tuple[Outage, ...]:
    """Stretches of failed scrapes (``up`` 0) of at least two grid points."""
    found: list[Outage] = []
    for series in case.of("target_up"):
        found.extend(_down(series))
    return tuple(found)


def _down(series: Series) -> Iterator[Outage]:
    down = np.nan_to_num(series.values, nan=1.0) < 0.5
    edges = np.diff(np.concatenate([[0], down.astype(np.int8), [0]]))
    for start, end in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
        if end - start >= 2:
            window = Window(float(series.times[start]), float(series.times[end - 1]))
            yield Outage(series.labels.get("instance", ""), window, int(end - start))
