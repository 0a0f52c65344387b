"""The metrics lie though the service is well."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told
from diag.simulate.scenarios.places import Struck, one_replica
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO"]

_ID = "telemetry_fault"


def _plan(draw: Draw) -> Plan:
    plan = healthy(draw, _ID)
    struck = Struck(plan.replicas) if draw.chance(0.3) else one_replica(plan, draw)
    since = [(draw.onset, name) for name in struck.instances]
    kind = draw.pick(("frozen", "vanished", "renamed", "nan"))
    broken = tuple((at, draw.seconds + 1.0, name) for at, name in since) if kind == "frozen" else tuple(since)
    plan = replace(plan, degradation=replace(plan.degradation, **{kind: broken}))  # type: ignore[arg-type]
    scope = {"instances": struck.instances}
    return told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)


SCENARIO = Scenario(_ID, _ID, "cause", "pages freeze, end, rename themselves or turn to NaN", _plan)
