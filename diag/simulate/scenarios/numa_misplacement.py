"""After a restart a process runs far from its GPU and its memory."""

from __future__ import annotations

from diag.simulate.plan import Plan, Restart
from diag.simulate.profiles import step
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, marked, told, with_host, with_replica
from diag.simulate.scenarios.places import on_one_host
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "numa_misplacement"
_DOWN_SECONDS = 45.0


def afflict(plan: Plan, draw: Draw) -> Plan:
    """The replicas of one host are restarted and come back on the wrong socket; what the host does between
    two steps then takes longer, beyond what far accesses cost the step itself."""
    struck = on_one_host(plan, draw)
    near = {host.name: host for host in plan.hosts}[struck.host].far_ratio.values[0]
    up = draw.onset + _DOWN_SECONDS
    plan = with_host(plan, struck.host, far_ratio=step(up, min(near, 0.1), draw.between(0.75, 1.0)))
    for replica in struck.replicas:
        base = replica.machine.decode_base_seconds
        plan = with_replica(
            plan,
            replica.name,
            restarts=(*replica.restarts, Restart(draw.onset, _DOWN_SECONDS)),
            step_seconds=step(up, 0.0, base * draw.severe(0.08, 0.6)),
        )
    if draw.chance(0.4):
        plan = marked(plan, draw.onset, "restart", struck.host, "node maintenance: pods rescheduled")
    scope = {"instances": struck.instances, "nodes": (struck.host,)}
    plan = told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)
    return deciding(plan, plan.shown.node, "node exporter")


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "a restarted process runs on the wrong socket", _plan)
