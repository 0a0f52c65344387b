"""Clients give up and ask again; mostly the engine goes on generating for nobody."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import crowded

__all__ = ["SCENARIO", "plan"]


def plan(draw: Draw) -> Plan:
    """``severe(0.12, 0.7)`` of all requests are left after a few seconds, with up to three retries."""
    made = healthy(draw, "abandoned_requests")
    seen, retries = draw.chance(0.35), draw.pick((0, 1, 1, 2, 3))
    if retries and draw.chance(0.6):
        made, _ = crowded(made, draw, 1.3, 2.0)
    leaving = draw.onwards(0.003, draw.severe(0.12, 0.7), ramp_ratio=0.25)
    patience = draw.between(1.0, 4.0)
    tenants = tuple(sorted({client.tenant for client in made.clients}))
    if draw.chance(0.3):
        tenants = tuple(sorted(draw.rng.choice(tenants, size=len(tenants) - 1, replace=False).tolist()))
    clients = tuple(
        replace(client, leave_ratio=leaving, patience_seconds=patience, leave_seen=seen, retries=retries)
        if client.tenant in tenants
        else client
        for client in made.clients
    )
    return told(
        replace(made, clients=clients),
        causes=("abandoned_requests",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"tenants": tenants},
    )


SCENARIO = Scenario(
    "abandoned_requests", "abandoned_requests", "cause", "clients leave before their answer is there", plan
)
