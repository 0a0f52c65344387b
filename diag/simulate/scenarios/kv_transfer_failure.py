"""KV transfers between replicas fail though the links are up."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told
from diag.simulate.scenarios.fabric import with_fabric

__all__ = ["SCENARIO"]

_ID = "kv_transfer_failure"


def _plan(draw: Draw) -> Plan:
    plan = with_fabric(draw, _ID)
    assert plan.fabric is not None
    failing = draw.onwards(0.0, draw.severe(0.25, 0.95))
    plan = replace(plan, fabric=replace(plan.fabric, failure_ratio=failing))
    return told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity)


SCENARIO = Scenario(_ID, _ID, "cause", "KV transfers fail for a reason other than the links", _plan)
