"""A small service: two replicas at most, one client, a change at half time."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.observed import Call, Run
from diag.simulate.plan import Client, Plan, Replica
from diag.simulate.profiles import constant

HALF = 360.0
CLIENT = Client(sessions_per_second=constant(0.4))
TWO = (Replica("vllm-0:8000", gpus=(0,)), Replica("vllm-1:8000", gpus=(1,)))


def plan(**parts: object) -> Plan:
    parts.setdefault("clients", (CLIENT,))
    return replace(Plan("test", 7, seconds=2 * HALF), **parts)  # type: ignore[arg-type]


def answered(result: Run, start: float, end: float) -> list[Call]:
    return [call for call in result.calls if call.status == "ok" and start <= call.sent < end]
