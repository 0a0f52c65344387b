"""The router begins to send most requests to the replica that already has their heads."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Balancing, Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import marked, told, with_gateway, with_settings
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "routing_hotspot"


def afflict(plan: Plan, draw: Draw) -> Plan:
    """At the onset a cache-aware router that hardly looks at load takes over; most tenants share one head."""
    for replica in plan.replicas:
        plan = with_settings(plan, replica.name, prefix_caching=True)
    shared = max(client.head_tokens for client in plan.clients)
    loyal = {client.tenant for client in plan.clients[: max(2, round(draw.severity * len(plan.clients)))]}
    clients = tuple(
        replace(client, head="common", head_tokens=shared) if client.tenant in loyal else client
        for client in plan.clients
    )
    before = draw.pick((Balancing.LEAST_LOADED, Balancing.ROUND_ROBIN))
    plan = with_gateway(
        replace(plan, clients=clients),
        balancing=((0.0, before), (draw.onset, Balancing.CACHE_AWARE)),
        affinity_weight=min(draw.severe(0.9, 1.0), 1.0),
    )
    accept: tuple[str, ...] = ()
    if draw.chance(0.3):
        plan = marked(plan, draw.onset, "config", "router", "router: prefix affinity enabled")
        accept = ("config_change",)
    return told(plan, causes=(_ID,), accept=accept, onset=draw.onset, severity=draw.severity)


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID, least_replicas=2), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "the router overloads replicas whose caches it likes", _plan)
