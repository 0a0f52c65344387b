"""A host's fabric links go down and up again; KV transfers time out and are tried again."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, told
from diag.simulate.scenarios.fabric import with_fabric

__all__ = ["SCENARIO"]

_ID = "fabric_flap"


def _plan(draw: Draw) -> Plan:
    plan = with_fabric(draw, _ID, least_hosts=2)
    assert plan.fabric is not None
    host = draw.pick(plan.hosts).name
    up, down = draw.severe(60.0, 12.0), draw.severe(30.0, 120.0)
    flaps, time = [], draw.onset
    while time < draw.seconds:
        end = time + down * draw.between(0.6, 1.5)
        flaps.append((time, end, host))
        time = end + up * draw.between(0.6, 1.5)
    plan = replace(plan, fabric=replace(plan.fabric, flaps=tuple(flaps)))
    # Whoever wants KV from that host waits in vain as well.
    scope = {"nodes": (host,), "instances": tuple(replica.name for replica in plan.replicas)}
    causes = (_ID, "kv_transfer_failure")
    plan = told(plan, causes=causes, onset=draw.onset, severity=draw.severity, scope=scope)
    if not plan.shown.node:
        plan = replace(plan, truth=replace(plan.truth, accept=("kv_transfer_failure",)))
    return deciding(plan, plan.shown.node, "node exporter")


SCENARIO = Scenario(_ID, _ID, "cause", "a host's fabric links flap and KV transfers storm", _plan)
