"""A process grows until its host swaps."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.profiles import Profile, ramp
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, told, with_host, with_replica
from diag.simulate.scenarios.places import on_one_host, with_busy_front
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "host_memory_leak"
_THIN_RATIO = 0.05  # of the host's memory: with less than that left, it begins to swap
_ENGINE_BYTES, _OTHER_BYTES = 22e9, 16.5e9  # resident of an engine, and of all that is not one


def afflict(plan: Plan, draw: Draw) -> Plan:
    """The leak runs from early on; the onset is when the memory is used up."""
    struck = on_one_host(plan, draw)
    memory = {host.name: host for host in plan.hosts}[struck.host].memory_bytes
    thin = _THIN_RATIO * memory
    room = memory - _OTHER_BYTES - len(struck.replicas) * _ENGINE_BYTES - thin
    begin = draw.between(0.0, 0.3) * draw.onset
    # Where the leak would end the host reclaims and the process ends; nearly all swapped is the worst seen.
    worst = draw.onset + draw.between(0.3, 0.6) * (draw.seconds - draw.onset)
    points = (begin, draw.onset, worst)
    amounts = (0.0, room, room + draw.severe(0.25, 1.0) * thin)
    plan = with_busy_front(plan, draw)
    for replica in struck.replicas:  # what is swapped out has to come back in the middle of a step
        swapping = ramp(draw.onset, worst, 0.0, replica.machine.decode_base_seconds * draw.severe(0.15, 1.5))
        plan = with_replica(plan, replica.name, step_seconds=swapping)
    leaking = draw.pick(("backend", "engine"))
    plan = with_host(plan, struck.host, leak_bytes=Profile(points, amounts), leaking=leaking)
    scope = {"instances": struck.instances, "nodes": (struck.host,)}
    plan = told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)
    return deciding(plan, plan.shown.node, "node exporter")


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "a process leaks until its host swaps", _plan)
