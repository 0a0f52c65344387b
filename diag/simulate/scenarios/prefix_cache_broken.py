"""The head of the prompts is no longer byte-equal: caching is on and hits nothing."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, marked, told, with_client
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import every, heavy_heads

__all__ = ["SCENARIO", "plan"]

_TEXTS = (
    "current time in the system prompt",
    "request number in the prompt header",
    "tools come from a set now",
)


def plan(draw: Draw) -> Plan:
    """A clock, a counter or the order of tools gets into the head of all prompts, or of most tenants'."""
    made = every(healthy(draw, "prefix_cache_broken"), prefix_caching=True)
    made = heavy_heads(made, draw.severe(0.25, 1.5))
    tenants = tuple(sorted({client.tenant for client in made.clients}))
    if draw.chance(0.35):
        tenants = tuple(sorted(draw.rng.choice(tenants, size=len(tenants) - 1, replace=False).tolist()))
    stable = draw.onwards(1.0, draw.severe(0.3, 0.02), ramp_ratio=0.25)
    for tenant in tenants:
        made = with_client(made, tenant, head_stable_ratio=stable)
    if draw.chance(0.5):
        made = marked(
            made, draw.onset + draw.between(-30.0, 5.0), "deploy", "prompt-service", draw.pick(_TEXTS)
        )
    made = told(
        made,
        causes=("prefix_cache_broken",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"tenants": tenants},
    )
    return deciding(made, made.shown.engine != "", "engine metrics")


SCENARIO = Scenario(
    "prefix_cache_broken", "prefix_cache_broken", "cause", "prompt heads are no longer byte-equal", plan
)
