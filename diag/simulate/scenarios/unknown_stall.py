"""All engines stop now and then at the same moment, for a reason that nobody exports."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told, with_replica
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO"]

_ID = "unknown_stall"


def _plan(draw: Draw) -> Plan:
    plan = healthy(draw, _ID)
    pauses, time = [], draw.onset
    rest, longest = draw.severe(60.0, 20.0), draw.severe(3.0, 9.0)
    while time < draw.seconds - 20.0:
        # Neither periodic nor growing: these would be pauses of a runtime.
        seconds = longest * draw.between(0.5, 1.0)
        pauses.append((time, seconds))
        time += seconds + float(draw.rng.exponential(rest)) + 2.0
    for replica in plan.replicas:
        plan = with_replica(plan, replica.name, pauses=tuple(pauses))
    scope = {"instances": tuple(replica.name for replica in plan.replicas)}
    return told(plan, causes=("unknown",), onset=draw.onset, severity=draw.severity, scope=scope)


SCENARIO = Scenario(_ID, "", "unknown", "all engines stop irregularly without a trace", _plan)
