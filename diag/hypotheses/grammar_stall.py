"""Compiling a grammar, or filling its mask, stalls the step for everybody.

A structured request brings a schema; compiling it takes CPU where the engine steps (or a pool that eats the
container's quota), and requests without any grammar wait along.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import PRESENT, rises, stated
from diag.detectors.rhythm import Rhythm, rhythm_of_arrivals
from diag.detectors.service import demand_of
from diag.detectors.view import View
from diag.detectors.workload import Workload
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

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
    demand = demand_of(view)
    if demand.known >= 2:
        text = f"demand rose: {', '.join(demand.moved)}" if demand.moved else "demand did not rise"
        yield stated("demand_flat", "arrivals_per_second", not demand.moved, text, degree=1 - demand.degree)


def _in_step(view: View, work: Workload) -> Iterator[Output]:
    """Structured requests against all others: stalls must follow them, and not just traffic."""
    requests = work.requests
    chosen = np.nan_to_num(requests.structured) > 0
    effects = ("inter_token_seconds_p99", "inter_token_seconds_mean", "ttft_seconds_mean")
    seen, others = (rhythm_of_arrivals(view, requests, c, *effects) for c in (chosen, ~chosen))
    if seen is None:
        return
    true = seen.keeps_time and (others is None or seen.r > others.r)
    text = f"steps are {'longer' if true else 'no longer'} when structured requests begin (correlation {seen.r:.2f}; {_spread(seen)})"
    if others is not None:
        text += f"; with the other requests' arrivals {others.r:.2f}"
    yield stated(
        "in_step",
        "inter_token_seconds_mean",
        true,
        text,
        degree=min(1.0, 0.5 + seen.r) if true else max(0.0, min(0.4, seen.r)),
    )


def _spread(seen: Rhythm) -> str:
    return f"{quantity(seen.low_seconds, 'seconds')} with few, {quantity(seen.high_seconds, 'seconds')} with many"
