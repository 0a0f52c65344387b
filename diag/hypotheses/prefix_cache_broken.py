"""Caching is on, but the head of the prompt is not byte-stable.

Mechanism: a clock, a counter, another tool order or template in front makes every prompt new from its
first block on, so nothing behind it can hit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import Explained, Reach, falls, flat, stated
from diag.detectors.new_work import extra_of
from diag.detectors.placement import placement_of
from diag.detectors.pool import evicts_by, use_around
from diag.detectors.view import View
from diag.detectors.whom import tenants_moved
from diag.detectors.workload import Workload
from diag.hypotheses.registry import Output
from diag.model import Card, Finding, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="prefix_cache_broken",
    title="Prefix cache never hits: the prompt's head keeps changing",
    mechanism="Something in front of the prompt (clock, counter, tool order, template, hash seed) changes with each request, so no block behind it can be reused.",
    signs=(
        "cached tokens per request fall at equal prompt lengths, often within one scrape",
        "computed tokens and prefill time rise; rate and lengths do not",
        "often a client deploy at the same moment",
    ),
    rules_out=("cached tokens per request stay level", "caching is off", "prompts shorter than a block"),
    look_alikes={
        "prefix_cache_scattered": "hits depend on the replica: same-replica turns still hit",
        "context_growth": "histories outgrow the pool and are evicted: lengths rose, KV is full",
        "head_of_line_blocking": "giants lower the ratio, not the cached tokens of everyone else",
        "engine_restart": "a cold cache warms up again by itself",
    },
    mitigations=(
        Mitigation("Roll back the client or template change that came with the fall.", True),
        Mitigation("Move whatever changes (time, counters, ids) behind the stable part of the prompt; sort tools.", True),
    ),
    next_check="Compare the first 200 tokens of two consecutive prompts of one session byte by byte.",
    chain=("request_cached_tokens", "prefix_cache_hit_ratio", "request_computed_tokens", "computed_tokens_per_request_mean", "prefill_seconds_mean", "ttft_seconds_mean"),
    leads_to=("prefill_interference",),
)  # fmt: skip

NEEDS = (("request_cached_tokens", "prefix_cache_hit_ratio"),)
_GONE = 0.1  # of the hits: less is left to nobody


def examine(view: View) -> Iterator[Output]:
    """Hits down at equal lengths, on one replica's own turns, without memory pressure."""
    cached, ratio = view.finding("request_cached_tokens"), view.fleet.get("prefix_cache_hit_ratio")
    # Of long and short prompts alike the rate falls, even if what a request finds varies too much to tell.
    told = cached is not None and (ratio is None or cached.effect <= -1 or ratio.effect > -1)
    main = cached if told else ratio
    if main is None:
        return
    hits = falls("hits", main, "cached tokens per request" if told else "prefix-cache hit rate")
    yield hits
    if told and ratio is not None:
        yield falls("hits_ratio", ratio, "prefix-cache hit rate")
    reuse = view.workload.findings.get("cache_reuse_ratio") if view.workload is not None else None
    if reuse is not None:
        yield falls("reuse", reuse, "what sessions find of their last turn")
    if view.workload is not None and hits.degree >= 0.5:
        yield Reach({"tenants": _lost_by(view.workload, ratio)})
    if view.fact("prefix_caching") == "off":
        yield stated(
            "caching_on",
            "prefix_cache_hit_ratio",
            False,
            "prefix caching is off: there is nothing to break",
            decisive=True,
        )
    length = view.finding("request_prompt_tokens", "prompt_tokens_per_request_mean")
    if length is not None:
        yield flat("lengths_flat", length, "prompt length", sign=1)
    usage = view.fleet.get("kv_cache_usage_ratio")
    if usage is not None:
        most = use_around(view, hits.onset) if hits.onset is not None else None
        most = max(usage.peak, usage.during) if most is None else most
        evicted = evicts_by(view, hits.onset if hits.onset is not None else view.onset)
        pressed = most >= 0.95 or evicted
        text = f"KV cache at most {quantity(most, 'ratio')} full when hits were lost" + (
            ", and requests were preempted: cached blocks are being evicted" if evicted
            else ": cached blocks are being evicted" if pressed
            else ": no pressure to evict cached blocks"
        )  # fmt: skip
        yield stated("no_pressure", usage.signal, not pressed, text, during=usage.peak, unit="ratio")
    switched = view.finding("replica_switch_ratio")
    placed = placement_of(view)
    if switched is not None and switched.effect >= 1 and not (placed is not None and placed.stayed_miss):
        yield stated(
            "one_replica",
            switched.signal,
            False,
            f"turns began to switch replicas ({quantity(switched.before, 'ratio')} → {quantity(switched.during, 'ratio')})",
        )
    elif switched is None and len(view.engines) > 1 and ratio is not None and ratio.effect <= -1:
        left = ratio.during / max(ratio.before, 1e-9)
        text = f"{quantity(left, 'ratio')} of the hits survive over {len(view.engines)} replicas"
        yield stated("everywhere", ratio.signal, left < _GONE, text, during=ratio.during, unit="ratio")
    if any(view.near_onset(c) for c in view.changes if c.kind == "restart"):
        yield stated(
            "no_restart",
            "engine_start_time_seconds",
            False,
            "the engine was restarted at the onset: its cache is cold, not broken",
        )
    extra = extra_of(view)
    if extra is not None:
        text = f"{quantity(extra.anew, 'ratio')} of the added prefill is what caches used to hold"
        yield stated(
            "lost", "computed_prompt_tokens_per_second", extra.anew >= 0.5, text, degree=extra.anew,
            before=extra.before, during=extra.during, unit="tokens per second",
        )  # fmt: skip
    share = view.phases.share("prefill")
    if share is not None:
        what = "prefill"
        rate = view.finding("arrivals_per_second", "first_tokens_per_second")
        level = rate is None or rate.effect < 1
        if level and extra is not None and extra.anew >= 0.5 and extra.during > 2 * extra.before:
            # An engine that computes twice as much for as many requests lets others wait for it.
            share = min(1.0, share + (view.phases.share("queue") or 0.0))
            what = "prefill, or the queue for it"
        yield stated(
            "route",
            "prefill_seconds_mean",
            share >= 0.4,
            f"{quantity(share, 'ratio')} of the extra wait is {what}",
            degree=share,
        )
        if hits.degree >= 0.5:
            yield Explained(share)


def _lost_by(work: Workload, ratio: Finding | None) -> tuple[str, ...]:
    """Tenants whose prompts are found less: by share, for their lengths differ. Where records do not say, all
    of them if next to nothing is found any more."""
    if not np.isfinite(work.requests.cached).any():
        gone = ratio is not None and ratio.during < _GONE * ratio.before
        return work.requests.tenants if gone else ()
    prompt = np.where(work.requests.prompt > 0, work.requests.prompt, np.nan)
    return tenants_moved(work, "cache_reuse_ratio", work.requests.cached / prompt, -1)
