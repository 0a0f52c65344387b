"""A client is its own bottleneck: its connection pool keeps most of its requests waiting inside it."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told, with_client, with_shown
from diag.simulate.scenarios.machines import in_flight, work
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "client_limit"


def afflict(plan: Plan, draw: Draw) -> Plan:
    """From the onset on the busiest tenant's client opens too few connections for what it wants to send."""
    rates = {c.tenant: work((c,), True, draw.onset).requests_per_second for c in plan.clients}
    tenant = max(rates, key=lambda name: rates[name])
    needed = in_flight(plan, draw.onset) * rates[tenant] / sum(rates.values())
    limit = max(round(needed + (1.2 - 1.5 * draw.severity) * needed**0.5), 1)
    plan = with_client(plan, tenant, concurrency_steps=((draw.onset, limit),))
    if not plan.shown.records:  # nobody but the client's own clock sees it
        plan = with_shown(plan, records=True, gateway_log=False)
    scope = {"tenants": (tenant,)}
    return told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "a client's own connection pool keeps its requests waiting", _plan)
