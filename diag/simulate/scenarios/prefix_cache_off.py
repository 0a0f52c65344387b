"""Prefix caching is switched off at a restart while prompts go on repeating themselves."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import after_restart, every, heavy_heads, long_sessions, struck

__all__ = ["SCENARIO", "plan"]


def plan(draw: Draw) -> Plan:
    """Computing the repeated part anew costs ``severe(0.2, 1.5)`` seconds a request."""
    made = every(healthy(draw, "prefix_cache_off"), prefix_caching=True)
    repeated = draw.severe(0.2, 1.5)
    made = heavy_heads(made, repeated) if draw.chance(0.6) else long_sessions(made, draw, repeated)
    names = struck(made, draw)
    text = (
        "engine image and start script renewed" if draw.chance(0.5) else "prefix caching disabled for a test"
    )
    made = after_restart(
        made, draw, names, text=text if draw.chance(0.7) else "", kind="deploy", prefix_caching=False
    )
    return told(
        made,
        causes=("prefix_cache_off", "config_change"),
        accept=("config_change",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": names},
    )


SCENARIO = Scenario(
    "prefix_cache_off", "prefix_cache_off", "cause", "prefix caching is off after a restart", plan
)
