"""Heat lowers the clock of one card, or of a whole host whose fans have failed."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.profiles import ramp
from diag.simulate.scenarios.card_limits import resistance_for
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import card_of, deciding, gpu_names, told, with_card, with_host
from diag.simulate.scenarios.places import some_replicas
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "thermal_throttle"


def afflict(plan: Plan, draw: Draw) -> Plan:
    """Dust or a dead fan: thermal resistance climbs until the governor takes the clock down."""
    struck = some_replicas(plan, draw)
    clock = draw.severe(0.82, 0.42)
    whole_host = len(struck.replicas) > 1 or draw.chance(0.4)
    places = [(r.host, gpu) for r in struck.replicas for gpu in (r.gpus if whole_host else r.gpus[:1])]
    resistance = draw.onwards(1.0, resistance_for(struck.replicas[0].machine, clock))
    for place in places:
        air = card_of(plan, *place).air_celsius.values[0]
        plan = with_card(plan, *place, resistance=resistance)
        if whole_host:
            warm = ramp(draw.onset, draw.onset + 300.0, air, air + draw.between(4.0, 10.0))
            plan = with_card(plan, *place, air_celsius=warm)
    if whole_host:
        room = {host.name: host for host in plan.hosts}[struck.host].room_celsius.values[0]
        warmer = ramp(draw.onset, draw.onset + 300.0, room, room + 6.0)
        plan = with_host(plan, struck.host, room_celsius=warmer)
    gpus = struck.gpus if whole_host else (gpu_names(struck.replicas[0])[0],)
    scope = {"instances": struck.instances, "gpus": gpus}
    plan = told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)
    return deciding(plan, bool(plan.shown.gpu), "GPU exporter")


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "cooling of a card or of a host fails and clocks sink", _plan)
