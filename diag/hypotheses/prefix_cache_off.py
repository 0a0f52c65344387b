"""Prefix caching is disabled while prompts repeat.

Mechanism: every turn computes its whole history again. Not a trigger by itself unless it was just
switched off; it multiplies whatever makes prompts longer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import PRESENT, stated
from diag.detectors.findings import fleet_series
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Evidence, Finding, Mitigation, Stance, Window
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
_HELD = 0.1  # of prompt tokens, found in a cache that is on
_LIKELY_OFF = 0.85
_FEWEST = 3  # points


def examine(view: View) -> Iterator[Output]:
    """The setting, whether anything is looked up or found, and whether prompts repeat."""
    setting = _setting(view)
    off = setting == "off"
    if setting is not None:
        yield stated(
            "off",
            "prefix_cache_query_tokens_per_second",
            off,
            f"prefix caching is {setting} (the engine's own configuration)",
            decisive=True,
        )
    else:
        found = _asked(view)
        if found is not None:
            yield found
            off = found.stance is Stance.FOR
    yield from _repeats(view)
    if off:
        yield from _switched(view)
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


def _setting(view: View) -> str | None:
    """Whether the slow engines cache: one of them may not while its peers do."""
    end = view.spans.incident.end + 1
    last = {
        fact.labels.get("instance"): fact.value
        for fact in view.case.facts_named("prefix_caching")
        if (fact.since is None or fact.since <= end) and fact.labels.get("instance") in view.affected
    }
    if not view.spared or not last:
        return view.fact("prefix_caching")
    return "off" if "off" in last.values() else "on"


def _asked(view: View) -> Evidence | None:
    """Without the setting: nothing is looked up, or after a restart nothing is ever found again."""
    queries = view.fleet.get("prefix_cache_query_tokens_per_second")
    if queries is None:
        return None
    served = _served(view)
    silent = served and _silent(view, queries)
    lost = served and not silent and _found_no_more(view)
    if silent:
        text = "nothing is looked up in the prefix cache although prompts are served"
    elif lost:
        text = "since the restart nothing is found in the prefix cache: a cold one would have warmed up"
    else:
        text = f"the prefix cache is asked for {quantity(queries.during, 'tokens per second')}"
    return stated(
        "off",
        queries.signal,
        silent or lost,
        text,
        before=queries.before,
        during=queries.during,
        unit=queries.unit,
        # Prompts whose heads keep changing are not found either.
        degree=_LIKELY_OFF if lost else None,
        decisive=queries.during > 0 and queries.present_ratio >= PRESENT,
    )


def _served(view: View) -> bool:
    """Whether prompts are read, to the end: metrics that stand still tell nothing of the cache."""
    tokens, late = view.fleet.get("prompt_tokens_per_second"), _late(view, "prompt_tokens_per_second")
    return tokens is not None and tokens.during > 1 and (late is None or late > 1)


def _silent(view: View, queries: Finding) -> bool:
    """Whether nobody asks the cache any more; replicas restart one after the other."""
    late = _late(view, queries.signal)
    return queries.during <= 0 or (late is not None and late <= 0)


def _late(view: View, signal: str) -> float | None:
    """The most that ``signal`` reached in the last half of the incident; None with fewer than three points."""
    series = fleet_series(view.case, signal, view.affected or None)
    if series is None:
        return None
    span = view.spans.incident
    values = series.within(Window(span.start + span.seconds / 2, span.end))
    known = values[np.isfinite(values)]
    return float(np.max(known)) if len(known) >= _FEWEST else None


def _found_no_more(view: View) -> bool:
    """Whether a cache that held something was empty ever since its engine's restart at the onset."""
    hits = view.fleet.get("prefix_cache_hit_ratio")
    late = _late(view, "prefix_cache_hit_ratio")
    restarted = any(view.near_onset(c) for c in view.changes if c.kind == "restart")
    return restarted and late is not None and late <= 0 and hits is not None and hits.before > _HELD


def _switched(view: View) -> Iterator[Output]:
    """Off now, and on before: told by a change of the setting, or by what the cache used to give."""
    signal = "prefix_cache_query_tokens_per_second"
    changes = [c for c in view.changes if c.signal == "prefix_caching" and c.after == "off"]
    if changes:
        text = f"it was switched off in this window: {changes[-1].text}"
        yield stated("switched", signal, True, text, onset=changes[-1].time)
        return
    hits = view.finding("prefix_cache_hit_ratio")
    queries, cached = view.fleet.get(signal), view.finding("request_cached_tokens")
    if queries is not None and queries.before > 0 and _served(view) and _silent(view, queries):
        text = "until the onset prompts were looked up in the prefix cache, since then none is"
        yield stated("switched", signal, True, text, onset=queries.onset)
    elif hits is not None and hits.before > _HELD and hits.effect <= -1:
        text = f"until the onset {quantity(hits.before, 'ratio')} of prompt tokens were found in the cache: it was on"
        yield stated("switched", hits.signal, True, text, onset=hits.onset)
    elif cached is not None and cached.before > 0 and cached.effect <= -1:
        text = (
            f"until the onset {quantity(cached.before, 'tokens')} of a prompt came from the cache: it was on"
        )
        yield stated("switched", cached.signal, True, text, onset=cached.onset)


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
