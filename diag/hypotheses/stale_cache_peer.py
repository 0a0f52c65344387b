"""Metadata says that a peer holds KV which it does not: peers ask in vain."""

from __future__ import annotations

from collections.abc import Iterator

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
    leads_to=("prefill_interference",),
)  # fmt: skip

NEEDS = (("kv_lookup_misses_per_second",),)

_TIME_TO_LIVE_SECONDS = 7200.0  # two hours in the incident this was seen in


def examine(view: View) -> Iterator[Output]:
    """Misses on believed hits, a fresh process among the engines, sound links."""
    missed = view.fleet.get("kv_lookup_misses_per_second")
    everywhere = view.each.get("kv_lookup_misses_per_second", ())
    if everywhere:
        worst = max(everywhere, key=lambda f: f.effect)
        missed = worst if missed is None or worst.effect > missed.effect else missed
    if missed is None:
        return
    yield rises("misses", missed, "look-ups that missed what a peer should hold")
    if missed.effect < 1:
        return
    fresh = [
        c for c in view.changes
        if c.kind == "restart" and view.onset - _TIME_TO_LIVE_SECONDS <= c.time <= view.onset + 300
    ]  # fmt: skip
    if fresh:
        ago = quantity(max(missed.onset or view.onset, fresh[-1].time) - fresh[-1].time, "seconds")
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


def _route(view: View) -> Iterator[Output]:
    engine = view.fleet.get("ttft_seconds_mean")
    if engine is None:
        return
    yield rises("late", engine, "the engine's own first-token time")
    if engine.effect >= 1:
        yield Explained(0.6)
