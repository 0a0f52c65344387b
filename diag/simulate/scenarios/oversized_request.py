"""A request that needs more KV than there is stands at the head of the queue: nothing behind it starts."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Plan, ScriptedCall
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import every

__all__ = ["SCENARIO", "plan"]

_TENANT = "t-archive"


def plan(draw: Draw) -> Plan:
    """The pool is smaller than the model's limit, so that the API lets such a prompt in; its client gives up
    after ``severe(60, 1500)`` seconds, and sometimes tries again."""
    made = healthy(draw, "oversized_request")
    pool = made.replicas[0].settings.kv_blocks * made.replicas[0].settings.block_size_tokens
    prompt = int(pool * draw.between(1.05, 1.6))
    made = every(made, max_model_len_tokens=max(131_072, 2 * prompt))
    patience = min(draw.severe(60.0, 1_500.0), draw.seconds - draw.onset)
    count = len(made.replicas) if draw.chance(0.5) else 1
    calls, time = [], draw.onset
    for number in range(count):
        calls.append(
            ScriptedCall(
                time,
                prompt,
                int(draw.between(50.0, 400.0)),
                tenant=_TENANT,
                session=f"archive-{number}",
                head="archive",
                leave_seconds=patience,
            )
        )
        time += draw.between(5.0, 60.0)
    return told(
        replace(made, script=tuple(calls)),
        causes=("oversized_request",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": (made.replicas[0].name,)} if len(made.replicas) == 1 else {},
    )


SCENARIO = Scenario(
    "oversized_request", "oversized_request", "cause", "the request at the head can never fit", plan
)
