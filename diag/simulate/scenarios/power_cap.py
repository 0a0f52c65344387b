"""A power limit or a brake lowers the clock of one replica, of a host, or of the whole service."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.card_limits import limit_for
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, told, with_card
from diag.simulate.scenarios.places import Struck, some_replicas
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "power_cap"


def afflict(plan: Plan, draw: Draw) -> Plan:
    """The cards' limit is lowered, or the chassis brakes them below it."""
    struck = Struck(plan.replicas) if draw.chance(0.2) else some_replicas(plan, draw, 0.4)
    clock = draw.severe(0.82, 0.42)
    field, value = draw.pick(
        (("power_limit_ratio", limit_for(struck.replicas[0].machine, clock)), ("clock_cap_ratio", clock))
    )
    brake = draw.onwards(1.0, value, ramp_ratio=0.2)
    for replica in struck.replicas:
        for gpu in replica.gpus:
            plan = with_card(plan, replica.host, gpu, **{field: brake})
    scope = {"instances": struck.instances, "gpus": struck.gpus}
    plan = told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)
    return deciding(plan, bool(plan.shown.gpu), "GPU exporter")


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "a power limit or brake takes the clock down", _plan)
