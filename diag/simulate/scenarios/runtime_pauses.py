"""A process pauses periodically, for longer the longer it has been up."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told, with_replica
from diag.simulate.scenarios.places import Struck, one_replica
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "runtime_pauses"
_UNFELT_SECONDS = 0.08


def afflict(plan: Plan, draw: Draw) -> Plan:
    """Garbage collection: always there, and from the onset on each pause is longer than the one before."""
    struck = Struck(plan.replicas) if draw.chance(0.3) else one_replica(plan, draw)
    period = draw.between(15.0, 40.0)
    longest = min(draw.severe(1.5, 9.0), 0.5 * period)
    for replica in struck.replicas:
        phase = draw.between(0.0, period)
        plan = with_replica(plan, replica.name, pauses=_pauses(draw, phase, period, longest))
    scope = {"instances": struck.instances}
    return told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)


def _pauses(draw: Draw, phase: float, period: float, longest: float) -> tuple[tuple[float, float], ...]:
    found, time, left = [], phase, draw.seconds - draw.onset
    while time < draw.seconds - period:
        grown = max(time - draw.onset, 0.0) / left
        # Most of the growth comes early: a heap that no longer fits is collected in full each time.
        found.append((time, _UNFELT_SECONDS + (longest - _UNFELT_SECONDS) * min(1.0, grown * 2.0)))
        time += period * draw.between(0.95, 1.05)
    return tuple(found)


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "periodic pauses that grow with uptime", _plan)
