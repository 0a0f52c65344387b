"""The KV pool is too small for the admitted work.

Mechanism: blocks run out, running requests are preempted, recomputed on return, and preempted again.
Usually a consequence of longer contexts or more load; a root only where capacity or admission changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.cues import PRESENT, Reach, stated
from diag.detectors.pool import pool_tokens
from diag.detectors.service import demand_of
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Finding, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="kv_cache_exhaustion",
    title="KV cache exhausted: preempt, recompute, preempt",
    mechanism=(
        "The pool of KV blocks is too small for the admitted work. Running requests are evicted, recomputed when they "
        "return and evicted again, or new ones wait for blocks while few run."
    ),
    signs=(
        "KV use at the ceiling with preemptions, or requests waiting for capacity",
        "prefill time grows without more prompt tokens arriving: recomputation is in no token counter",
        "a smaller pool: fewer blocks after a restart, a second engine on the card",
    ),
    rules_out=("KV use below 90 % throughout", "no preemption and nobody waiting, with the counters alive"),
    look_alikes={
        "context_growth": "lengths rose first: then this is its consequence",
        "load_burst": "the rate rose first",
        "sequence_limit": "requests wait while KV is nearly empty",
        "kv_block_leak": "blocks stay taken with nothing running",
    },
    mitigations=(
        Mitigation("Lower --max-num-seqs or admit less at the gateway: fewer requests at once, none of them thrown away.", True),
        Mitigation("If the pool shrank with a change, roll it back (blocks × block size is in vllm:cache_config_info).", True),
        Mitigation("More pool: --gpu-memory-utilization, fp8 KV cache, tensor parallelism, another replica; needs a restart.", False),
    ),
    next_check="Compare kv_cache_size_tokens (or num_gpu_blocks × block_size) with running requests × their context length.",
    chain=("kv_cache_usage_ratio", "preemptions_per_second", "waiting_requests", "prefill_seconds_mean", "queue_seconds_mean", "ttft_seconds_mean"),
    leads_to=("prefix_cache_broken",),
)  # fmt: skip

NEEDS = (("kv_cache_usage_ratio",),)
_FULL, _SAFE = 0.95, 0.90


def examine(view: View) -> Iterator[Output]:
    """Fullness, pressure, and whether capacity or demand changed."""
    usage = view.fleet.get("kv_cache_usage_ratio")
    if usage is None:
        return
    yield _fullness(usage, _needed(view))
    yield from _pressure(view, usage)
    shrank = [
        c
        for c in view.changes
        if c.kind == "fact" and c.signal in ("kv_blocks", "kv_capacity_tokens") and _less(c.before, c.after)
    ]
    if shrank:
        change = shrank[-1]
        yield stated(
            "shrank", "kv_capacity_tokens", True, f"the pool shrank: {change.text}", onset=change.time
        )
    elif view.fact("kv_capacity_tokens") or view.fact("kv_blocks"):
        yield stated("shrank", "kv_capacity_tokens", False, "the pool is as large as before")
    yield Reach({"instances": _full_on(view, {change.target for change in shrank})})
    demand = demand_of(view)
    if demand.known >= 2:
        text = (
            f"demand rose instead: {', '.join(demand.moved)}"
            if demand.moved
            else "rate, prompt and answer lengths did not rise: capacity did change, not demand"
        )
        yield stated(
            "demand_flat", "prompt_tokens_per_request_mean", not demand.moved, text, degree=1 - demand.degree
        )


def _needed(view: View) -> float | None:
    """Share of the pool that one long prompt takes; None where pool or lengths are not known."""
    pool = pool_tokens(view, view.affected[0] if view.affected else "")
    prompt = view.finding("request_prompt_tokens", "prompt_tokens_per_request_mean")
    return prompt.during / pool if pool and prompt is not None else None


def _fullness(usage: Finding, needed: float | None) -> Output:
    """A pool is full when the next prompt does not fit, whatever is left of it."""
    most = max(usage.peak, usage.during)
    text = f"KV cache up to {quantity(most, 'ratio')} full during the incident (before: {quantity(usage.before, 'ratio')} on average)"
    full = most >= _FULL
    degree = 1.0 if full else max(0.0, (most - _SAFE) / (_FULL - _SAFE)) * 0.5
    if not full and needed is not None and most + needed > 1 and usage.effect >= 1:
        full, degree = True, 0.8
        text += f", and a usual prompt takes {quantity(needed, 'ratio')}: another one does not fit"
    return stated(
        "full", usage.signal, full, text, before=usage.before, during=most, unit="ratio", onset=usage.onset,
        degree=degree, decisive=most + (needed or 0.0) < _SAFE and usage.present_ratio >= PRESENT,
    )  # fmt: skip


def _full_on(view: View, shrank: set[str]) -> tuple[str, ...]:
    """The engines whose pool shrank, else those whose own pool is full."""
    found = view.each.get("kv_cache_usage_ratio", ())
    full = {f.labels.get("instance", "") for f in found if max(f.peak, f.during) >= _FULL}
    return tuple(sorted((shrank or full) & view.engines)) or view.affected


def _pressure(view: View, usage: Finding) -> Iterator[Output]:
    evicted, waiting = view.fleet.get("preemptions_per_second"), view.fleet.get("waiting_requests")
    if evicted is not None and evicted.during * view.spans.settled.seconds >= 2:
        count = evicted.during * view.spans.settled.seconds
        text = f"about {count:.0f} preemptions in the incident ({quantity(evicted.before * view.spans.baseline.seconds, '')} before)"
        yield stated(
            "pressure",
            evicted.signal,
            True,
            text,
            before=evicted.before,
            during=evicted.during,
            unit="per second",
            onset=evicted.onset,
        )
    elif waiting is not None and waiting.during >= 0.5 and max(usage.peak, usage.during) >= _FULL:
        text = f"{quantity(waiting.during, 'requests')} waiting on average while the pool is full"
        yield stated(
            "pressure",
            waiting.signal,
            True,
            text,
            before=waiting.before,
            during=waiting.during,
            unit="requests",
            onset=waiting.onset,
        )
    elif evicted is not None:
        yield stated(
            "pressure",
            evicted.signal,
            False,
            "no preemption in the incident, with the counter alive",
            before=evicted.before,
            during=evicted.during,
            unit="per second",
            decisive=evicted.present_ratio >= PRESENT and max(usage.peak, usage.during) < _FULL,
        )


def _less(before: str, after: str) -> bool:
    try:
        return float(after) < 0.9 * float(before)
    except ValueError:
        return False
