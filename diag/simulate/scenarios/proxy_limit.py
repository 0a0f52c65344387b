"""The gateway's connection pool or timeout is set too tight."""

from __future__ import annotations

import math

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import marked, told, with_gateway, with_shown
from diag.simulate.scenarios.machines import in_flight, token_seconds, work
from diag.simulate.scenarios.places import calls_seen
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "proxy_limit"
_ROUND_SECONDS = (5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0)


def afflict(plan: Plan, draw: Draw) -> Plan:
    """A new limit of the gateway binds from the onset on: requests wait in it, or are cut off."""
    plan = calls_seen(plan)
    needed = in_flight(plan, draw.onset)
    if draw.chance(0.7):
        # From a little room for peaks down to fewer than the average needs: then the line only grows.
        limit = max(round(needed + (1.5 - 1.8 * draw.severity) * needed**0.5), 1)
        plan = with_gateway(plan, max_in_flight_steps=((draw.onset, limit),))
    else:
        plan = with_gateway(plan, timeout_steps=((draw.onset, _timeout(plan, draw)),))
    if draw.chance(0.25):
        plan = marked(plan, draw.onset, "config", "gateway", "gateway: tuned upstream limits")
        plan = told(plan, causes=(_ID,), accept=("config_change",), onset=draw.onset, severity=draw.severity)
    else:
        plan = told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity)
    if not plan.shown.gateway_log and draw.chance(0.5):
        plan = with_shown(plan, records=False, gateway_log=True)
    return plan


def _timeout(plan: Plan, draw: Draw) -> float:
    """The longest round timeout, seconds, that cuts off at least ``severe(0.1, 0.45)`` of all answers."""
    wanted, pace = draw.severe(0.1, 0.45), token_seconds(plan, draw.onset)
    tight = [limit for limit in _ROUND_SECONDS if _longer_ratio(plan, draw, limit / pace) >= wanted]
    return max(tight, default=_ROUND_SECONDS[0])


def _longer_ratio(plan: Plan, draw: Draw, tokens: float) -> float:
    """Share of requests whose answer is longer than ``tokens``."""
    rates = {c: work((c,), True, draw.onset).requests_per_second for c in plan.clients}
    longer = 0.0
    for client, rate in rates.items():
        lengths = client.output_tokens
        above = math.log(tokens / lengths.median) / max(lengths.sigma, 1e-6)
        longer += rate * 0.5 * math.erfc(above / math.sqrt(2.0))
    return longer / sum(rates.values())


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "the gateway's pool or timeout binds", _plan)
