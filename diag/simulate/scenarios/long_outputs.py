"""Answers get several times longer: decode slots and KV stay taken."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.profiles import product
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import marked, told, with_client
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import crowded

__all__ = ["SCENARIO", "plan"]


def plan(draw: Draw) -> Plan:
    """Answers of all or most tenants become ``severe(1.4, 4)`` as long (reasoning, a lost stop word)."""
    made, _ = crowded(healthy(draw, "long_outputs"), draw, 1.5, 3.0)
    tenants = tuple(sorted({client.tenant for client in made.clients}))
    if draw.chance(0.4):
        tenants = tuple(sorted(draw.rng.choice(tenants, size=len(tenants) - 1, replace=False).tolist()))
    longer = draw.onwards(1.0, draw.severe(1.4, 4.0), ramp_ratio=0.3)
    for client in made.clients:
        if client.tenant in tenants:
            made = with_client(made, client.tenant, output_factor=product(client.output_factor, longer))
    if draw.chance(0.4):
        made = marked(
            made, draw.onset + draw.between(-30.0, 5.0), "deploy", "prompt-service", "max_tokens raised"
        )
    return told(
        made,
        causes=("long_outputs",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"tenants": tenants},
    )


SCENARIO = Scenario("long_outputs", "long_outputs", "cause", "answers are several times longer", plan)
