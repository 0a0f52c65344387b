"""The router stops keeping a session on its replica: every turn meets a cache that does not know it."""

from __future__ import annotations

from diag.simulate.plan import Balancing, Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import marked, told, with_gateway
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import every, long_sessions, several

__all__ = ["SCENARIO", "plan"]


def plan(draw: Draw) -> Plan:
    """From sticky to round robin, where computing a history anew costs ``severe(0.3, 2)`` seconds."""
    made = every(healthy(several(draw), "prefix_cache_scattered"), prefix_caching=True)
    made = long_sessions(made, draw, draw.severe(0.3, 2.0))
    made = with_gateway(
        made, balancing=((0.0, Balancing.STICKY), (draw.onset, Balancing.ROUND_ROBIN)), affinity_weight=0.7
    )
    if draw.chance(0.4):
        made = marked(
            made, draw.onset + draw.between(-30.0, 5.0), "config", "gateway", "upstream pool renewed"
        )
    return told(
        made,
        causes=("prefix_cache_scattered",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": tuple(replica.name for replica in made.replicas)},
    )


SCENARIO = Scenario(
    "prefix_cache_scattered", "prefix_cache_scattered", "cause", "turns of a session change replicas", plan
)
