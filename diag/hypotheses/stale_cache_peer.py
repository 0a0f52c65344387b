"""Metadata says that a peer holds KV which it does not: peers ask in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from diag.detectors.cues import Explained, Reach, rises, stated
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="stale_cache_peer",
    title="Peers ask a fresh process for KV that died with the one before",
    mechanism="The store's metadata outlives a client; the process that takes its place (same address) is asked for keys it never had, answers with misses, is overloaded by them, and those who asked compute the prompt after all.",
    signs=("look-ups miss although the store believes in a hit", "one process has just started", "that process is the slow one, or those that ask it", "links are sound"),
    rules_out=("what is believed to be there is found",),
    look_alikes={"routing_hotspot": "real work is uneven, nothing misses", "kv_transfer_failure": "the key is there, its transfer fails", "engine_restart": "cold for some minutes, nobody else slow"},
    mitigations=(
        Mitigation("Take the fresh process out of sharing until the metadata's time to live has passed.", True),
        Mitigation("Delete the dead client's entries at the master, or restart the client on another port; shorten the time to live.", False),
    ),
    next_check="The store master's list of clients and segments against the processes that run, with their start times.",
    chain=("engine_start_time_seconds", "kv_lookup_misses_per_second", "kv_transfer_failures_per_second", "prefill_seconds_mean", "ttft_seconds_mean"),
    leads_to=("prefill_interference", "prefix_cache_broken"),
)  # fmt: skip

NEEDS = (("kv_lookup_misses_per_second", "computed_tokens_per_request_mean"),)

_SHARED = 0.08  # of prompts: less may be the two counters of different moments
_TIME_TO_LIVE_SECONDS = 7200.0  # two hours in the incident this was seen in


def examine(view: View) -> Iterator[Output]:
    """Misses on believed hits, a fresh process among the engines, sound links."""
    missed = view.fleet.get("kv_lookup_misses_per_second")
    everywhere = view.each.get("kv_lookup_misses_per_second", ())
    if everywhere:
        worst = max(everywhere, key=lambda f: f.effect)
        missed = worst if missed is None or worst.effect > missed.effect else missed
    lost = _found_elsewhere(view)
    if missed is None and lost is None:
        return
    if missed is not None:
        yield rises("misses", missed, "look-ups that missed what a peer should hold")
    if lost is not None:
        yield _elsewhere(lost)
    if (missed is None or missed.effect < 1) and (lost is None or not lost.gone):
        return
    fresh = [
        c for c in view.changes
        if c.kind == "restart" and view.onset - _TIME_TO_LIVE_SECONDS <= c.time <= view.onset + 300
    ]  # fmt: skip
    if fresh:
        since = missed.onset if missed is not None and missed.onset is not None else view.onset
        ago = quantity(max(since, fresh[-1].time) - fresh[-1].time, "seconds")
        yield stated("fresh", "engine_start_time_seconds", True, f"{fresh[-1].text}, {ago} before the misses")
        yield Reach({"instances": view.engines_named([fresh[-1].target])})
    elif view.case.of("engine_start_time_seconds"):
        yield stated("fresh", "engine_start_time_seconds", False, "no process is fresh", degree=0.2)
    downs = view.each.get("node_infiniband_link_downs_per_second", ())
    if downs:
        sound = all(f.peak <= f.before + 1e-9 for f in downs)
        text = "no link went down meanwhile" if sound else "links went down meanwhile"
        yield stated(
            "links_sound", "node_infiniband_link_downs_per_second", sound, text, degree=1.0 if sound else 0.1
        )
    yield from _route(view)


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """Shares of prompts (0 … 1) that an engine did not compute and did not find in its own cache either."""

    instance: str
    before: float
    during: float

    @property
    def gone(self) -> bool:
        """Whether half of it or more is lost."""
        return self.during <= 0.5 * self.before


def _found_elsewhere(view: View) -> _Elsewhere | None:
    """Of the engines that are no fresh process the one that lost most of what it found in others' caches; None
    where nobody finds anything there, or that cannot be told."""
    fresh = {c.target for c in view.changes if c.kind == "restart"}
    names = ("prompt_tokens_per_request_mean", "computed_tokens_per_request_mean", "prefix_cache_hit_ratio")
    by_name = [{f.labels.get("instance", ""): f for f in view.each.get(name, ())} for name in names]
    found: list[_Elsewhere] = []
    for instance in set.intersection(*(set(one) for one in by_name)) - fresh:
        prompt, computed, hits = (one[instance] for one in by_name)
        if min(prompt.before, prompt.during) <= 0:
            continue
        before = 1 - computed.before / prompt.before - hits.before
        during = 1 - computed.during / prompt.during - hits.during
        if before >= _SHARED:
            found.append(_Elsewhere(instance, before, max(during, 0.0)))
    return min(found, key=lambda one: (one.during / one.before, one.instance), default=None)


def _elsewhere(lost: _Elsewhere) -> Output:
    kept = lost.during / lost.before
    text = (
        f"{lost.instance} found {quantity(lost.before, 'ratio')} of its prompts in caches that are not its own, "
        f"and now {quantity(lost.during, 'ratio')}"
    )
    degree = max(0.0, min(1.0, 1.25 - 1.5 * kept))
    return stated(
        "elsewhere", "computed_tokens_per_request_mean", degree >= 0.5, text,
        before=lost.before, during=lost.during, unit="ratio", degree=degree,
    )  # fmt: skip


def _route(view: View) -> Iterator[Output]:
    engine = view.fleet.get("ttft_seconds_mean")
    if engine is None:
        return
    yield rises("late", engine, "the engine's own first-token time")
    if engine.effect >= 1:
        yield Explained(0.6)
