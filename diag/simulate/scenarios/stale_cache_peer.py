"""After a restart the peers still believe that a replica holds what it has lost."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Plan, Restart
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told, with_replica
from diag.simulate.scenarios.fabric import with_fabric
from diag.simulate.scenarios.machines import mean_tokens, work
from diag.simulate.scenarios.places import one_replica

__all__ = ["SCENARIO"]

_ID = "stale_cache_peer"
_DOWN_SECONDS = 40.0


def _plan(draw: Draw) -> Plan:
    plan = with_fabric(draw, _ID)
    (replica,) = one_replica(plan, draw).replicas
    up = draw.onset + _DOWN_SECONDS
    restarts = (*replica.restarts, Restart(draw.onset, _DOWN_SECONDS, reason=draw.pick(("crash", "deploy"))))
    plan = with_replica(plan, replica.name, restarts=restarts)
    # Beliefs live as long as the metadata does, often longer than the rest of the window.
    lives = draw.between(0.7, 1.5) * (draw.seconds - up)
    stale = ((up, min(up + lives, draw.seconds), replica.name),)
    assert plan.fabric is not None
    fabric = replace(plan.fabric, stale=stale, lookup_seconds=_lookup_seconds(plan, draw))
    plan = replace(plan, fabric=fabric)
    causes = (_ID, "engine_restart")
    scope = {"instances": (replica.name,)}
    return told(plan, causes=causes, onset=draw.onset, severity=draw.severity, scope=scope)


def _lookup_seconds(plan: Plan, draw: Draw) -> float:
    """So that all peers' vain look-ups keep the fresh process busy for ``severe(0.3, 0.95)`` of its time."""
    asking = sum(
        work((client,), True, draw.onset).requests_per_second * (1.0 - 1.0 / mean_tokens(client.turns))
        for client in plan.clients
    )
    asking *= 1.0 - 1.0 / len(plan.replicas)
    return min(max(draw.severe(0.3, 0.95) / max(asking, 1e-6), 0.3), 3.0)


SCENARIO = Scenario(_ID, _ID, "cause", "peers ask a restarted replica for a cache it has lost", _plan)
