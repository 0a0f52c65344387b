"""Requests lose time in the engines' front for a reason that nobody exports."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told, with_replica
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO"]

_ID = "unknown_front"


def _plan(draw: Draw) -> Plan:
    plan = healthy(draw, _ID)
    front = draw.onwards(0.002, draw.severe(0.4, 3.0))
    for replica in plan.replicas:
        plan = with_replica(plan, replica.name, front_seconds=front)
    scope = {"instances": tuple(replica.name for replica in plan.replicas)}
    return told(plan, causes=("unknown",), onset=draw.onset, severity=draw.severity, scope=scope)


SCENARIO = Scenario(_ID, "", "unknown", "requests wait before the scheduler without a trace", _plan)
