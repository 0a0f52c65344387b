"""All tenants send more than the service can serve."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.profiles import Profile
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told, with_load
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import overload

__all__ = ["SCENARIO", "plan"]


def plan(draw: Draw) -> Plan:
    """Everybody's rate rises to ``severe(0.8, 1.6)`` of what can be served, give or take."""
    made, factor = overload(healthy(draw, "load_burst"), draw, 0.8, 1.6)
    onwards = draw.onwards(1.0, factor)
    for tenant in sorted({client.tenant for client in made.clients}):
        own = draw.between(0.85, 1.15)
        values = tuple(1.0 + own * (value - 1.0) for value in onwards.values)
        made = with_load(made, Profile(onwards.times, values), [tenant])
    return told(made, causes=("load_burst",), onset=draw.onset, severity=draw.severity)


SCENARIO = Scenario("load_burst", "load_burst", "cause", "more work arrives than can be served", plan)
