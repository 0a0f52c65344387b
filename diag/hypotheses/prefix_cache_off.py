"""Prefix caching is disabled while prompts repeat.

Mechanism: every turn computes its whole history again. Not a trigger by itself unless it was just
switched off; it multiplies whatever makes prompts longer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import PRESENT, stated
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="prefix_cache_off",
    title="Prefix caching is off while prompts repeat",
    mechanism="With prefix caching disabled every turn computes its whole history again, not only its new tail.",
    signs=(
        "cache_config_info says enable_prefix_caching=False, or nothing is ever looked up in the cache",
        "computed tokens equal prompt tokens although sessions repeat their prompts",
    ),
    rules_out=("caching is on", "prompts do not repeat"),
    look_alikes={"prefix_cache_broken": "on, but it never hits"},
    mitigations=(
        Mitigation("Turn it on (--enable-prefix-caching) at the next restart; it changes no answers.", True),
        Mitigation("Expect it to help only while histories fit the KV pool: trim them as well.", True),
    ),
    next_check="Read enable_prefix_caching in vllm:cache_config_info; estimate the repeated share of prompts from request records.",
    chain=("computed_tokens_per_request_mean", "prefill_seconds_mean", "ttft_seconds_mean"),
    leads_to=("prefill_interference",),
)  # fmt: skip

NEEDS = (("prefix_cache_query_tokens_per_second", "fact:prefix_caching"),)
_REPEATS = 0.3  # share of prompt tokens the previous turn already held, worth caching


def examine(view: View) -> Iterator[Output]:
    """The setting, whether anything is looked up, and whether prompts repeat."""
    setting, queries = view.fact("prefix_caching"), view.fleet.get("prefix_cache_query_tokens_per_second")
    if setting is not None:
        off = setting == "off"
        yield stated(
            "off",
            "prefix_cache_query_tokens_per_second",
            off,
            f"prefix caching is {setting} (the engine's own configuration)",
            decisive=True,
        )
    elif queries is not None:
        tokens = view.fleet.get("prompt_tokens_per_second")
        served = tokens is not None and tokens.during > 1
        off = queries.during <= 0 and served
        text = (
            "nothing is ever looked up in the prefix cache although prompts are served"
            if off
            else f"the prefix cache is asked for {quantity(queries.during, 'tokens per second')}"
        )
        yield stated(
            "off",
            queries.signal,
            off,
            text,
            before=queries.before,
            during=queries.during,
            unit=queries.unit,
            decisive=queries.during > 0 and queries.present_ratio >= PRESENT,
        )
    yield from _repeats(view)
    if setting is None and queries is not None and queries.before > 0 and queries.during <= 0:
        text = "until the onset prompts were looked up in the prefix cache, since then none is"
        yield stated("switched", queries.signal, True, text, onset=queries.onset)
    switched = [c for c in view.changes if c.signal == "prefix_caching" and c.after == "off"]
    if switched:
        yield stated(
            "switched",
            "prefix_cache_query_tokens_per_second",
            True,
            f"it was switched off in this window: {switched[-1].text}",
            onset=switched[-1].time,
        )
    service = [view.phases.share(p) for p in ("prefill", "queue", "front")]
    known = [s for s in service if s is not None]
    if known:
        share = min(sum(known), 1.0)
        yield stated(
            "route",
            "prefill_seconds_mean",
            share >= 0.4,
            f"{quantity(share, 'ratio')} of the extra wait is inside the engine",
            degree=share,
        )


def _repeats(view: View) -> Iterator[Output]:
    if view.workload is None or not view.workload.requests.sessions:
        return
    r, inc = view.workload.requests, view.workload.incident
    known = inc & np.isfinite(r.prompt)
    if known.sum() < 12:
        return
    share = float(np.nansum(r.history[known]) / max(np.nansum(r.prompt[known]), 1.0))
    text = f"{quantity(share, 'ratio')} of prompt tokens repeat what the session had already sent or received"
    yield stated(
        "repeats",
        "cache_reuse_ratio",
        share >= _REPEATS,
        text,
        during=share,
        unit="ratio",
        degree=min(1.0, share / (2 * _REPEATS)),
        decisive=share < 0.05,
    )
