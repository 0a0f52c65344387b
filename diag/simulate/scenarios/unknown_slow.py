"""Every engine is slower for a reason that nobody exports."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told, with_replica
from diag.simulate.scenarios.machines import load_ratio
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import held_tokens, widened

__all__ = ["SCENARIO"]

_ID = "unknown_slow"
_FULLEST = 0.85


def _plan(draw: Draw) -> Plan:
    plan = healthy(draw, _ID)
    # Short of overload and with room in the pool: a full pool or full slots would be a trace.
    most = max(_FULLEST / load_ratio(plan, draw.onset), 1.3)
    slower = draw.onwards(1.0, min(draw.severe(1.3, 2.5), most))
    plan = widened(plan, 4.0 * held_tokens(plan))
    # All of them: one engine that is slow beside its peers would be a slow GPU, as far as anybody can tell.
    for replica in plan.replicas:
        plan = with_replica(plan, replica.name, step_factor=slower)
    scope = {"instances": tuple(replica.name for replica in plan.replicas)}
    return told(plan, causes=("unknown",), onset=draw.onset, severity=draw.severity, scope=scope)


SCENARIO = Scenario(_ID, "", "unknown", "steps take longer on all engines without a trace", _plan)
