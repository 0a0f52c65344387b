"""Long prefills share the steps of running answers: tokens come in jerks."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Client, Lengths, Plan
from diag.simulate.profiles import constant
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told
from diag.simulate.scenarios.machines import load_ratio
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import every, prefill_tokens, widened

__all__ = ["SCENARIO", "plan"]

_TENANT = "t-retrieval"


def plan(draw: Draw) -> Plan:
    """A client begins to send prompts of ``severe(0.35, 1)`` seconds of prefill each, often; the token budget
    lets a step take a whole one, so that every running answer stands still for it."""
    made = healthy(draw, "prefill_interference")
    seconds = draw.severe(0.35, 1.0)
    tokens = prefill_tokens(made.replicas[0].machine, seconds)
    made = every(
        widened(made, 8.0 * tokens),
        max_num_batched_tokens=max(2 * tokens, 8_192),
        chunked_prefill=draw.chance(0.6),
        max_num_seqs=256,
    )
    # What is left of the GPU bounds it: beyond that the queue would be what hurts.
    share = min(draw.severe(0.15, 0.42), 0.92 - load_ratio(made))
    client = Client(
        tenant=_TENANT,
        sessions_per_second=draw.onwards(0.0, share / seconds * len(made.replicas), ramp_ratio=0.3),
        turns=Lengths(1.0, 0.0, 1, 1),
        head="retrieval",
        head_tokens=64,
        message_tokens=Lengths(float(tokens), 0.2, 64, 2 * tokens),
        output_tokens=Lengths(60.0, 0.3, 8, 200),
        history_limit_tokens=constant(0.0),
    )
    return told(
        replace(made, clients=(*made.clients, client)),
        causes=("prefill_interference",),
        onset=draw.onset,
        severity=draw.severity,
    )


SCENARIO = Scenario(
    "prefill_interference", "prefill_interference", "cause", "long prefills hold up running answers", plan
)
