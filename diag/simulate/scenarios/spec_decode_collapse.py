"""Draft tokens are no longer accepted: speculation costs more than it gives."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Plan
from diag.simulate.profiles import constant
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told, with_replica
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import every, struck

__all__ = ["SCENARIO", "plan"]


def plan(draw: Draw) -> Plan:
    """Acceptance falls from about 0.75 to ``severe(0.55, 0.05)``: other texts, or another draft model."""
    made = every(healthy(draw, "spec_decode_collapse"), speculative_tokens=draw.pick((3, 4, 5)))
    usual = draw.between(0.7, 0.82)
    made = replace(
        made, replicas=tuple(replace(one, acceptance_ratio=constant(usual)) for one in made.replicas)
    )
    names = struck(made, draw, all_ratio=0.8)
    falling = draw.onwards(usual, draw.severe(0.55, 0.05))
    for name in names:
        made = with_replica(made, name, acceptance_ratio=falling)
    return told(
        made,
        causes=("spec_decode_collapse",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": names},
    )


SCENARIO = Scenario(
    "spec_decode_collapse", "spec_decode_collapse", "cause", "draft tokens are no longer accepted", plan
)
