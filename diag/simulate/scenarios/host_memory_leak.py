"""A process grows until its host swaps."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.profiles import Profile
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, told, with_host
from diag.simulate.scenarios.places import on_one_host
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "host_memory_leak"
_FULL_RATIO = 0.9  # of the host's memory: with what is used anyway, nothing is left
_END_RATIOS = (0.95, 1.1)  # leaked at the window's end


def afflict(plan: Plan, draw: Draw) -> Plan:
    """The leak runs from early on; the onset is when the memory is used up."""
    struck = on_one_host(plan, draw)
    memory = {host.name: host for host in plan.hosts}[struck.host].memory_bytes
    begin = draw.between(0.0, 0.3) * draw.onset
    points = (begin, draw.onset, draw.seconds)
    amounts = (0.0, _FULL_RATIO * memory, draw.severe(*_END_RATIOS) * memory)
    leaking = draw.pick(("backend", "engine"))
    plan = with_host(plan, struck.host, leak_bytes=Profile(points, amounts), leaking=leaking)
    scope = {"instances": struck.instances, "nodes": (struck.host,)}
    plan = told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)
    return deciding(plan, plan.shown.node, "node exporter")


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "a process leaks until its host swaps", _plan)
