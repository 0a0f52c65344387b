"""Healthy, and serving nobody: a hang, slots taken by parked requests, a transfer that never comes."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.profiles import ramp
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import replica_of, told, with_replica, with_settings
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "plan"]

_PARKED_SLOTS = 64


def plan(draw: Draw) -> Plan:
    """One engine stands still for ``severe(60, 1500)`` seconds, or runs out of slots for good."""
    made = healthy(draw, "engine_stall")
    name = draw.pick(made.replicas).name
    way = draw.pick(("collective", "deadlock", "transfer", "parked"))
    if way == "parked":
        made = _parked(made, draw, name)
    else:
        end = min(draw.onset + draw.severe(60.0, 1_500.0), draw.seconds)
        deferred = replica_of(made, name).deferred
        if way == "transfer":
            waiting = float(draw.rng.integers(1, 4))
            deferred = ramp(draw.onset, draw.onset + 1.0, 0.0, waiting)
        made = with_replica(
            made, name, hangs=((draw.onset, end),), hang_spins=way == "collective", deferred=deferred
        )
    return told(
        made,
        causes=("engine_stall",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": (name,)},
    )


def _parked(plan: Plan, draw: Draw, name: str) -> Plan:
    """Requests that wait for a remote KV load keep their slots; the load was lost."""
    plan = with_settings(plan, name, max_num_seqs=_PARKED_SLOTS)
    filled = draw.onset + draw.between(0.05, 0.2) * (draw.seconds - draw.onset)
    return with_replica(plan, name, deferred=ramp(draw.onset, filled, 0.0, float(_PARKED_SLOTS)))


SCENARIO = Scenario("engine_stall", "engine_stall", "cause", "health is 200 and no token comes", plan)
