"""The gateway's connection pool or timeout is set too tight."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import marked, told, with_gateway, with_shown
from diag.simulate.scenarios.machines import in_flight
from diag.simulate.scenarios.places import calls_seen
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "proxy_limit"


def afflict(plan: Plan, draw: Draw) -> Plan:
    """A new limit of the gateway binds from the onset on: requests wait in it, or are cut off."""
    plan = calls_seen(plan)
    needed = in_flight(plan, draw.onset)
    if draw.chance(0.7):
        # From a little room for peaks down to fewer than the average needs: then the line only grows.
        limit = max(int(needed + (1.1 - 1.6 * draw.severity) * needed**0.5), 1)
        plan = with_gateway(plan, max_in_flight_steps=((draw.onset, limit),))
    else:
        limit_seconds = draw.pick((20.0, 15.0, 10.0) if draw.severity > 0.5 else (30.0, 20.0))
        plan = with_gateway(plan, timeout_steps=((draw.onset, limit_seconds),))
    if draw.chance(0.25):
        plan = marked(plan, draw.onset, "config", "gateway", "gateway: tuned upstream limits")
        plan = told(plan, causes=(_ID,), accept=("config_change",), onset=draw.onset, severity=draw.severity)
    else:
        plan = told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity)
    if not plan.shown.gateway_log and draw.chance(0.5):
        plan = with_shown(plan, records=False, gateway_log=True)
    return plan


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "the gateway's pool or timeout binds", _plan)
