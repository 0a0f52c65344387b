"""Structured output stalls the step: grammars are compiled while everybody waits."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Plan
from diag.simulate.profiles import constant
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import request_rate

__all__ = ["SCENARIO", "plan"]


def plan(draw: Draw) -> Plan:
    """Stalls take ``severe(0.06, 0.4)`` of the time. Either structured requests begin, or their schemas
    become so large that compiling is what they cost."""
    made = healthy(draw, "grammar_stall")
    tenants = sorted({client.tenant for client in made.clients})
    chosen = tuple(sorted(draw.rng.choice(tenants, size=max(len(tenants) - 1, 1), replace=False).tolist()))
    ratio = draw.between(0.4, 0.9)
    share = sum(c.sessions_per_second.values[0] * c.turns.median for c in made.clients if c.tenant in chosen)
    whole = sum(c.sessions_per_second.values[0] * c.turns.median for c in made.clients)
    stalls = request_rate(made) * ratio * share / whole
    seconds = min(draw.severe(0.06, 0.4) / max(stalls, 1e-3), 8.0)
    begins = draw.chance(0.6)
    structured = draw.onwards(0.0, ratio, ramp_ratio=0.3) if begins else constant(ratio)
    stalling = constant(seconds) if begins else draw.onwards(0.004, seconds, ramp_ratio=0.3)
    clients = tuple(
        replace(client, structured_ratio=structured if client.tenant in chosen else constant(0.0))
        for client in made.clients
    )
    replicas = tuple(replace(replica, grammar_seconds=stalling) for replica in made.replicas)
    return told(
        replace(made, clients=clients, replicas=replicas),
        causes=("grammar_stall",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": tuple(replica.name for replica in replicas)},
    )


SCENARIO = Scenario("grammar_stall", "grammar_stall", "cause", "compiling grammars stalls every step", plan)
