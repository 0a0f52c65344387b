"""The router begins to send most requests to the replica that already has their heads."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Balancing, Client, Plan
from diag.simulate.profiles import constant, product, step
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import marked, told, with_gateway, with_load
from diag.simulate.scenarios.machines import load_ratio
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import every, heavy_heads, held_tokens, widened

__all__ = ["SCENARIO", "afflict"]

_ID = "routing_hotspot"
_BUSIEST = 0.68


def afflict(plan: Plan, draw: Draw) -> Plan:
    """At the onset a cache-aware router that hardly looks at load takes over, while a new prompt template
    goes live: whichever replica computes its head first gets everything that begins with it."""
    plan, share = _shared(plan, draw)
    plan = heavy_heads(plan, draw.between(0.2, 0.6))
    clients = tuple(part for client in plan.clients for part in _parted(client, draw.onset, share))
    before = draw.pick((Balancing.LEAST_LOADED, Balancing.ROUND_ROBIN))
    plan = with_gateway(
        replace(plan, clients=clients),
        balancing=((0.0, before), (draw.onset, Balancing.CACHE_AWARE)),
        affinity_weight=draw.between(0.97, 0.995),
    )
    accept: tuple[str, ...] = ()
    if draw.chance(0.3):
        plan = marked(plan, draw.onset, "config", "router", "router: prefix affinity enabled")
        accept = ("config_change",)
    return told(plan, causes=(_ID,), accept=accept, onset=draw.onset, severity=draw.severity)


def _shared(plan: Plan, draw: Draw) -> tuple[Plan, float]:
    """Caching on, and the share of sessions with the new template that puts ``severe(0.95, 1.7)`` of what it
    can serve onto one replica. Where even all of them are too few, the service was busier all the time."""
    plan = every(plan, prefix_caching=True)
    count, wanted = len(plan.replicas), draw.severe(0.95, 1.7)
    usual = load_ratio(plan, draw.onset)
    busier = min(max(1.1 * wanted / count, usual), _BUSIEST)
    if busier > usual:
        plan = widened(with_load(plan, constant(busier / usual)), held_tokens(plan) * (busier / usual) * 3.0)
    share = (wanted / busier - 1.0) / (count - 1)
    return plan, min(max(share, 0.15), 1.0)


def _parted(client: Client, onset: float, share: float) -> tuple[Client, Client]:
    """The sessions with the old head, and those that begin with the new one from the onset on."""
    rate = client.sessions_per_second
    old = replace(client, sessions_per_second=product(rate, step(onset, 1.0, 1.0 - share)))
    new = replace(client, sessions_per_second=product(rate, step(onset, 0.0, share)), head="template-v2")
    return old, new


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID, least_replicas=2), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "the router overloads replicas whose caches it likes", _plan)
