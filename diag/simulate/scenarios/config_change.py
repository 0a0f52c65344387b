"""A deploy, flag, model or version is what made it slow; replicas that kept the old one are fine."""

from __future__ import annotations

from typing import Any

from diag.simulate.plan import Plan
from diag.simulate.profiles import step
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import replica_of, told, with_replica
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import after_restart, every, struck

__all__ = ["SCENARIO", "plan"]

_TEXTS = {
    "budget": "scheduler flags: smaller max_num_batched_tokens",
    "threads": "engine start script: OMP_NUM_THREADS and CPU set renewed",
    "front": "API server back to one process",
    "precision": "weights without quantisation rolled out",
    "version": "engine version rolled out",
}


def plan(draw: Draw) -> Plan:
    """Restarted replicas are slower in one of five ways; nothing but the change tells why."""
    made = healthy(draw, "config_change")
    way = draw.pick(tuple(_TEXTS))
    changes: dict[str, Any] = {}
    if way == "budget":
        made = every(made, max_num_batched_tokens=4_096)
        changes["max_num_batched_tokens"] = int(draw.severe(512.0, 96.0))
    # What leaves no label behind is only known from its event.
    told_about = way in ("threads", "front", "precision") or draw.chance(0.8)
    if way == "version" or draw.chance(0.3) or not told_about:
        changes["version"] = "0.33.0"
    names = struck(made, draw, all_ratio=0.45)
    kind = "deploy" if way in ("precision", "version") else "config"
    made = after_restart(made, draw, names, text=_TEXTS[way] if told_about else "", kind=kind, **changes)
    made = _slowed(made, draw, way, names)
    return told(
        made,
        causes=("config_change",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": names},
    )


def _slowed(plan: Plan, draw: Draw, way: str, names: tuple[str, ...]) -> Plan:
    """What the change costs each of ``names`` from its restart on."""
    later = {
        "threads": ("step_seconds", 0.0, draw.severe(0.008, 0.05)),
        "front": ("front_seconds", 0.002, draw.severe(0.3, 2.0)),
        "precision": ("step_factor", 1.0, draw.severe(1.25, 2.0)),
        "version": ("step_factor", 1.0, draw.severe(1.25, 2.0)),
    }.get(way)
    if later is None:
        return plan
    field, before, after = later
    for name in names:
        since = max(restart.time for restart in replica_of(plan, name).restarts)
        plan = with_replica(plan, name, **{field: step(since, before, after)})
    return plan


SCENARIO = Scenario("config_change", "config_change", "cause", "a change made it slow", plan)
