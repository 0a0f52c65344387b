"""The request at the head of the queue needs more KV than the whole pool, and nobody passes it.

Running 0, waiting N, KV nearly empty, health 200: what tells it apart from a dead engine is a prompt longer
than the pool, and that service comes back the moment its client leaves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import PRESENT, Explained, Reach, stated
from diag.detectors.pool import number_of_fact, pool_tokens
from diag.detectors.standstill import Standstill, held_up, seen_ratio, standstills
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity
from diag.records.cohorts import Flags, Requests

CARD = Card(
    id="oversized_request",
    title="A request larger than the whole KV pool blocks the queue",
    mechanism="With first come, first served and room reserved for whole prompts, a prompt longer than the pool but within max_model_len can never be admitted; everybody behind it waits until its client leaves.",
    signs=(
        "nothing runs, requests wait, KV nearly empty, health 200",
        "a waiting prompt longer than the pool in tokens (start-up line, cache_config_info)",
        "service resumes when that one client leaves",
    ),
    rules_out=("tokens flow, or something runs, throughout", "max_model_len is no larger than the pool: no prompt can be too long"),
    look_alikes={
        "engine_stall": "what waits would fit; a batch stands still, or the engine is dead",
        "head_of_line_blocking": "the giant runs, it only takes long",
        "sequence_limit": "slots are taken by parked requests",
        "kv_cache_exhaustion": "the pool is full",
    },
    mitigations=(
        Mitigation("Abort the request at the head (its client, or at the gateway): the queue moves at once.", True),
        Mitigation("Reject prompts longer than the pool at the gateway.", True),
        Mitigation("Set --max-model-len no larger than the pool, or --no-scheduler-reserve-full-isl; needs a restart.", False),
    ),
    next_check="Compare `GPU KV cache size: … tokens` of the start-up log with the longest prompt that waits.",
    chain=("prompt_tokens_per_request_p99", "waiting_requests", "running_requests", "first_tokens_per_second", "ttft_seconds_p95"),
    leads_to=("abandoned_requests",),
)  # fmt: skip

NEEDS = (
    ("running_requests",),
    ("waiting_requests",),
    ("generation_tokens_per_second", "prompt_tokens_per_second"),
)


def examine(view: View) -> Iterator[Output]:
    """An empty batch before a queue, and whether what waits can ever fit."""
    blocked = [s for s in standstills(view) if s.running < 0.5 and s.waiting >= 0.5 and not s.frozen]
    if not blocked:
        yield _none(view)
        yield from _possible(view, "")
        return
    worst = blocked[0]
    text = f"for {quantity(worst.window.seconds, 'seconds')} nothing runs on {worst.instance} while {worst.waiting:.0f} requests wait"
    yield stated("blocked", "waiting_requests", True, text, onset=worst.window.start)
    if worst.kv_usage is not None:
        low = worst.kv_usage < 0.5
        text = f"KV cache at most {quantity(worst.kv_usage, 'ratio')} full meanwhile"
        yield stated("kv_low", "kv_cache_usage_ratio", low, text, during=worst.kv_usage, unit="ratio")
    yield _steps(worst)
    yield from _reason(worst)
    pool = pool_tokens(view, worst.instance)
    yield from _lengths(view, worst, pool)
    yield from _possible(view, worst.instance)
    yield Explained(float(np.clip(worst.window.seconds / view.spans.incident.seconds, 0.0, 1.0)))
    yield Reach({"instances": tuple(dict.fromkeys(s.instance for s in blocked))})


def _none(view: View) -> Output:
    names = (
        ("running_requests",),
        ("waiting_requests",),
        ("generation_tokens_per_second", "prompt_tokens_per_second"),
    )
    whole = min(seen_ratio(view, *group) for group in names) >= PRESENT
    text = "there is no stretch in which nothing runs while others wait"
    return stated("blocked", "waiting_requests", False, text, decisive=whole)


def _steps(still: Standstill) -> Output:
    """Gauges are published by steps: a queue that is seen to grow is looked at by a living scheduler."""
    text = "the queue is seen to grow" if still.gauges_move else "its gauges stand still"
    text += ": the engine steps, and admits nobody" if still.gauges_move else ": no step ends, whatever waits"
    return stated("steps", "waiting_requests", still.gauges_move, text)


def _reason(still: Standstill) -> Iterator[Output]:
    """What the scheduler itself says that the waiting ones wait for (vLLM from 0.20)."""
    if still.parked is None:
        return
    text = f"{still.waiting - still.parked:.0f} wait for capacity, {still.parked:.0f} for something else"
    yield stated("reason", "waiting_for_capacity_requests", still.parked < 0.5, text)


def _lengths(view: View, still: Standstill, pool: float | None) -> Iterator[Output]:
    if view.workload is None:
        return
    requests = view.workload.requests
    there = held_up(requests, still)
    known = there & np.isfinite(requests.prompt)
    tokens = float(np.max(requests.prompt[known])) if known.any() else 0.0
    # Usage comes with the end of an answer: of those still waiting the lengths are seldom known.
    if pool is not None and (tokens > pool or (there.any() and (there == known).all())):
        text = f"the longest prompt that waits has {quantity(tokens, 'tokens')}, the whole pool {quantity(pool, 'tokens')}"
        yield stated(
            "too_long", "kv_capacity_tokens", tokens > pool, text, before=pool, during=tokens, unit="tokens"
        )
    yield from _released(view, requests, still, there)


def _released(view: View, requests: Requests, still: Standstill, there: Flags) -> Iterator[Output]:
    """Whether service came back when the first of those that wait left without an answer."""
    head = np.flatnonzero(there & ~np.isfinite(requests.ttft))
    if not still.ended or not len(head):
        return
    left = requests.ts[head] + requests.duration[head]
    slack = view.spans.look_back_seconds + 2 * view.case.step_seconds
    early = requests.ts[head] <= still.window.start + slack
    near = early & (np.abs(left - still.window.end) <= slack)
    gone = bool(near.any())
    text = (
        "service came back when one of the first that waited left"
        if gone
        else "service came back, and none of the first that waited had left"
    )
    yield stated("released", "first_tokens_per_second", gone, text)


def _possible(view: View, instance: str) -> Iterator[Output]:
    """Whether any admissible prompt could be too long for the pool."""
    pool, most = pool_tokens(view, instance), number_of_fact(view, "max_model_len_tokens", instance)
    if pool is None or most is None:
        return
    text = (
        f"prompts of up to {quantity(most, 'tokens')} are accepted, the pool holds {quantity(pool, 'tokens')}"
    )
    yield stated(
        "possible",
        "kv_capacity_tokens",
        most > pool,
        text,
        before=pool,
        during=most,
        unit="tokens",
        decisive=most <= pool,
    )
