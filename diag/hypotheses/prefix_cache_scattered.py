"""Turns of one session land on different replicas, whose caches know nothing of each other."""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.cues import Explained, Reach, falls, flat, rises, stated
from diag.detectors.new_work import extra_of
from diag.detectors.placement import placement_of
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="prefix_cache_scattered",
    title="Sessions are scattered over replicas: local prefix caches miss",
    mechanism="The balancer sends the turns of one session to different replicas; each computes the whole history that another one holds.",
    signs=(
        "turns begin to switch replicas",
        "same-replica turns hit, switched turns miss",
        "the hit rate falls on all replicas at once, loads stay even, nobody queues",
    ),
    rules_out=("one replica only", "turns stay on their replica", "equal hits on same- and other-replica turns"),
    look_alikes={"prefix_cache_broken": "misses everywhere, also on the same replica"},
    mitigations=(
        Mitigation("Make routing sticky by session (header or cookie hash) at the balancer.", True),
        Mitigation("Use a cache-aware router, weighing load as well, or share KV between replicas.", False),
    ),
    next_check="Count how many replicas served each session in the last ten minutes, from the gateway's log.",
    chain=("replica_switch_ratio", "prefix_cache_hit_ratio", "request_computed_tokens", "computed_tokens_per_request_mean", "prefill_seconds_mean", "ttft_seconds_mean"),
    leads_to=("prefill_interference",),
)  # fmt: skip

NEEDS = (("request_cached_tokens", "prefix_cache_hit_ratio"),)


def examine(view: View) -> Iterator[Output]:
    """Several replicas, turns that switch, and hits that depend on it."""
    replicas = max(
        len(view.affected) + len(view.spared), len(view.workload.requests.instances) if view.workload else 0
    )
    if replicas < 2:
        told = view.workload is not None and len(view.workload.requests.instances) == 1
        text = "every request went to one replica" if told else "only one replica is seen"
        # Without records there may be replicas that nobody scrapes.
        yield stated("replicas", "replica_switch_ratio", False, text, decisive=told)
        return
    ratio, cached = view.fleet.get("prefix_cache_hit_ratio"), view.finding("request_cached_tokens")
    main = ratio or cached
    if main is not None:
        yield falls("hits", main, "prefix-cache hit rate" if ratio else "cached tokens per request")
    switched = view.finding("replica_switch_ratio")
    if switched is not None:
        yield rises("switching", switched, "share of turns on another replica than the turn before")
    yield from _contrast(view)
    length = view.finding("request_prompt_tokens", "prompt_tokens_per_request_mean")
    if length is not None:
        yield flat("lengths_flat", length, "prompt length", sign=1)
    if switched is None and ratio is not None and ratio.effect <= -1:
        left = ratio.during / max(ratio.before, 1e-9)
        text = f"{quantity(left, 'ratio')} of the hits survive on {replicas} replicas"
        yield stated("partial", ratio.signal, 0.1 < left < 0.8, text, degree=0.9 if 0.1 < left < 0.8 else 0.1)
    extra = extra_of(view)
    if extra is not None:
        text = f"{quantity(extra.anew, 'ratio')} of the added prefill is what caches used to hold"
        yield stated(
            "lost", "computed_prompt_tokens_per_second", extra.anew >= 0.5, text, degree=extra.anew,
            before=extra.before, during=extra.during, unit="tokens per second",
        )  # fmt: skip
    share = view.phases.share("prefill")
    if share is not None:
        yield stated(
            "route",
            "prefill_seconds_mean",
            share >= 0.4,
            f"{quantity(share, 'ratio')} of the extra wait is prefill",
            degree=share,
        )
        if main is not None and main.effect <= -1:
            yield Explained(share)
    yield Reach({"instances": tuple(sorted(view.engines))})


def _contrast(view: View) -> Iterator[Output]:
    """Reuse on turns that stayed against turns that switched, inside the incident."""
    seen = placement_of(view)
    if seen is None:
        return
    text = f"turns on the same replica reuse {quantity(seen.stayed, 'ratio')} of their history, turns on another {quantity(seen.moved, 'ratio')}"
    if seen.stayed_miss:
        text += f": those that stay miss as well ({quantity(seen.usual, 'ratio')} before)"
    apart = seen.stayed - seen.moved
    yield stated(
        "same_replica_hits",
        "cache_reuse_ratio",
        apart > 0.15 and not seen.stayed_miss,
        text,
        before=seen.stayed,
        during=seen.moved,
        unit="ratio",
        degree=0.0 if seen.stayed_miss else min(1.0, max(0.0, apart / 0.3)),
    )
