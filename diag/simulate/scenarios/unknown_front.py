"""Requests lose time in the engines' front for a reason that nobody exports."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told, with_replica
from diag.simulate.scenarios.machines import offered_per_second
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO"]

_ID = "unknown_front"


def _plan(draw: Draw) -> Plan:
    plan = healthy(draw, _ID)
    # The front works through its requests one by one: it must not become the next bottleneck.
    most = 0.5 * len(plan.replicas) / offered_per_second(plan, draw.onset)
    front = draw.onwards(0.002, min(draw.severe(0.35, 2.5), most))
    for replica in plan.replicas:
        plan = with_replica(plan, replica.name, front_seconds=front)
    scope = {"instances": tuple(replica.name for replica in plan.replicas)}
    return told(plan, causes=("unknown",), onset=draw.onset, severity=draw.severity, scope=scope)


SCENARIO = Scenario(_ID, "", "unknown", "requests wait before the scheduler without a trace", _plan)
