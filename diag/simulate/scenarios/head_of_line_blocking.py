"""Giant prompts come first and are served first: the short ones behind them wait."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Client, Lengths, Plan
from diag.simulate.profiles import constant, step
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import every, prefill_tokens, widened

__all__ = ["SCENARIO", "plan"]

_TENANT = "t-archive"


def plan(draw: Draw) -> Plan:
    """From the onset a few prompts a minute need ``severe(0.8, 6)`` seconds of prefill each: in one step
    (no chunked prefill), or in as many as it takes with the whole token budget."""
    made = healthy(draw, "head_of_line_blocking")
    seconds = draw.severe(0.8, 6.0)
    tokens = prefill_tokens(made.replicas[0].machine, seconds)
    made = widened(made, 3.0 * tokens)
    made = every(made, max_model_len_tokens=max(131_072, 2 * tokens), policy=made.replicas[0].settings.policy)
    if draw.chance(0.5):
        made = every(made, chunked_prefill=False, max_num_batched_tokens=max(131_072, 2 * tokens))
    rate = draw.between(0.15, 0.3) / seconds * len(made.replicas)
    giant = Client(
        tenant=_TENANT,
        sessions_per_second=step(draw.onset, 0.0, rate),
        turns=Lengths(1.0, 0.0, 1, 1),
        head="archive",
        head_tokens=64,
        message_tokens=Lengths(float(tokens), 0.15, 1_000, int(1.4 * tokens)),
        output_tokens=Lengths(80.0, 0.3, 8, 200),
        history_limit_tokens=constant(0.0),
    )
    return told(
        replace(made, clients=(*made.clients, giant)),
        causes=("head_of_line_blocking",),
        onset=draw.onset,
        severity=draw.severity,
    )


SCENARIO = Scenario(
    "head_of_line_blocking", "head_of_line_blocking", "cause", "short requests wait behind giant ones", plan
)
