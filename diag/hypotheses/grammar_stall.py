"""Compiling a grammar, or filling its mask, stalls the step for everybody.

A structured request brings a schema; compiling it takes CPU where the engine steps (or a pool that eats the
container's quota), and requests without any grammar wait along.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import PRESENT, rises, stated
from diag.detectors.holdups import held_up_by
from diag.detectors.idling import idling_of
from diag.detectors.rhythm import rhythm_of_arrivals
from diag.detectors.service import demand_of
from diag.detectors.view import View
from diag.detectors.workload import Workload
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity
from diag.records.cohorts import Requests

CARD = Card(
    id="grammar_stall",
    title="Structured-output grammars stall the engine's steps",
    mechanism="A request with a JSON schema or grammar has it compiled, and a mask filled at every token; done on the step's own thread, or by a pool larger than the CPU quota, it holds up every request in the batch.",
    signs=(
        "stalls coincide with structured requests, also for requests without a grammar",
        "requests wait for their grammar (SGLang's grammar queue, vLLM's deferred)",
        "CPU of the engine busy, GPU idle in the gaps",
    ),
    rules_out=("no structured requests", "stalls have nothing to do with when structured requests begin"),
    look_alikes={"host_cpu_starvation": "CPU is short for everybody, whatever they ask", "prefill_interference": "stalls go with prompt tokens", "runtime_pauses": "pauses keep their own time"},
    mitigations=(
        Mitigation("Reuse schemas byte for byte: compiled grammars are cached.", True),
        Mitigation("Send structured requests to a replica of their own.", True),
        Mitigation("Raise the CPU limit or cap the grammar compiler's threads; try another structured-output backend.", False),
    ),
    next_check="Send one request with a new schema to a quiet replica and look at the gap in another stream.",
    chain=("structured_ratio", "grammar_queue_requests", "engine_cpu_ratio", "inter_token_seconds_mean", "ttft_seconds_p95"),
)  # fmt: skip

NEEDS = (("structured_ratio", "grammar_queue_requests", "waiting_deferred_requests"),)


def examine(view: View) -> Iterator[Output]:
    """Whether there are structured requests, whether stalls follow them, and where the time goes."""
    work = view.workload
    share = work.findings.get("structured_ratio") if work is not None else None
    if work is not None and share is not None:
        asked = share.during > 0.005
        text = f"{quantity(share.during, 'ratio')} of requests ask for structured output (before: {quantity(share.before, 'ratio')})"
        yield stated(
            "structured", share.signal, asked, text, before=share.before, during=share.during, unit="ratio",
            degree=0.0 if not asked else 1.0 if share.effect >= 1 else 0.6,
            onset=share.onset, decisive=not asked and share.present_ratio >= PRESENT,
        )  # fmt: skip
        if asked:
            yield from _in_step(view, work)
    queue = view.fleet.get("grammar_queue_requests")
    if queue is not None:
        yield rises("queue", queue, "requests waiting for their grammar")
    elif (parked := view.fleet.get("waiting_deferred_requests")) is not None:
        yield rises("parked", parked, "requests waiting for something other than capacity")
    cpu = view.fleet.get("engine_cpu_ratio")
    if cpu is not None:
        yield rises("cpu", cpu, "CPU of the serving process")
    idle = idling_of(view)
    if idle is not None:
        yield stated(
            "card_waits",
            "gpu_utilization_ratio",
            idle.degree >= 0.5,
            idle.text,
            degree=idle.degree,
            unit="ratio",
        )
    demand = demand_of(view)
    if demand.known >= 2:
        text = f"demand rose: {', '.join(demand.moved)}" if demand.moved else "demand did not rise"
        yield stated("demand_flat", "arrivals_per_second", not demand.moved, text, degree=1 - demand.degree)


def _in_step(view: View, work: Workload) -> Iterator[Output]:
    """What a structured request that begins costs the answers beside it, against what any other costs."""
    requests = work.requests
    chosen = np.nan_to_num(requests.structured) > 0
    found = held_up_by(requests, work.incident & ~chosen, chosen.astype(float), (~chosen).astype(float))
    if found is None:
        yield from _rhythm(view, work)
        return
    ours, others = found
    true = ours.sure and ours.seconds > 2 * max(others.seconds - others.error, 0.0) and ours.share >= 0.05
    text = (
        f"each structured request that begins costs an answer beside it {quantity(max(ours.seconds, 0.0), 'seconds')}, "
        f"any other {quantity(max(others.seconds, 0.0), 'seconds')}; {quantity(ours.share, 'ratio')} of the others' answer time"
    )
    degree = min(1.0, 0.8 + ours.share) if true else 0.35 if ours.sure else 0.1
    yield stated(
        "in_step", "inter_token_seconds_mean", true, text, degree=degree,
        decisive=not ours.sure and ours.units * (ours.seconds + 3 * ours.error) < 0.03 * _usual_seconds(requests, work),
    )  # fmt: skip


def _usual_seconds(requests: Requests, work: Workload) -> float:
    decode = (requests.duration - requests.ttft)[work.incident]
    return float(np.nanmean(decode)) if np.isfinite(decode).any() else 0.0


def _rhythm(view: View, work: Workload) -> Iterator[Output]:
    """With too few answers for that: whether steps are long in the scrapes in which structured requests begin."""
    requests = work.requests
    chosen = np.nan_to_num(requests.structured) > 0
    effects = ("inter_token_seconds_p99", "inter_token_seconds_mean", "ttft_seconds_mean")
    seen, others = (rhythm_of_arrivals(view, requests, c, *effects) for c in (chosen, ~chosen))
    if seen is None:
        return
    true = seen.keeps_time and (others is None or seen.r > others.r)
    text = f"steps are {'longer' if true else 'no longer'} when structured requests begin (correlation {seen.r:.2f})"
    yield stated(
        "in_step", "inter_token_seconds_mean", true, text, degree=min(1.0, 0.5 + seen.r / 2) if true else 0.3
    )
