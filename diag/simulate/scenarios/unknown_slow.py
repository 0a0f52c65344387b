"""Every engine is slower for a reason that nobody exports."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told, with_replica
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO"]

_ID = "unknown_slow"


def _plan(draw: Draw) -> Plan:
    plan = healthy(draw, _ID)
    slower = draw.onwards(1.0, draw.severe(1.3, 2.5))
    # All of them: one engine that is slow beside its peers would be a slow GPU, as far as anybody can tell.
    for replica in plan.replicas:
        plan = with_replica(plan, replica.name, step_factor=slower)
    scope = {"instances": tuple(replica.name for replica in plan.replicas)}
    return told(plan, causes=("unknown",), onset=draw.onset, severity=draw.severity, scope=scope)


SCENARIO = Scenario(_ID, "", "unknown", "steps take longer on all engines without a trace", _plan)
