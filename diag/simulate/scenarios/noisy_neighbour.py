"""Another process computes on the GPU of one replica, in spells or without a pause."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.profiles import spells
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, gpu_names, told, with_card, with_shown
from diag.simulate.scenarios.places import one_replica
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "noisy_neighbour"


def afflict(plan: Plan, draw: Draw) -> Plan:
    """A job arrives at the onset, takes memory and its share of the SMs, and works in spells."""
    struck = one_replica(plan, draw)
    (replica,) = struck.replicas
    share = draw.severe(0.25, 0.65)
    busy = _spells(draw)
    memory = draw.between(3e9, 25e9)
    resident = draw.chance(0.5)
    gpu = draw.pick(replica.gpus)
    if plan.shown.gpu == "dcgm":  # dcgm-exporter lists no processes
        plan = with_shown(plan, gpu=draw.pick(("llmdiag", "nvidia_gpu_exporter")))
    held = [(draw.onset, draw.seconds)] if resident else busy
    plan = with_card(
        plan,
        replica.host,
        gpu,
        foreign_sm_ratio=spells(busy, 0.0, share),
        foreign_memory_bytes=spells(held, 0.0, memory),
    )
    scope = {"instances": struck.instances, "gpus": (gpu_names(replica)[replica.gpus.index(gpu)],)}
    plan = told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)
    return deciding(plan, bool(plan.shown.gpu), "GPU exporter")


def _spells(draw: Draw) -> list[tuple[float, float]]:
    """From the onset on, busy for more than half of the time."""
    if draw.chance(0.3):
        return [(draw.onset, draw.seconds)]
    busy, resting = draw.between(90.0, 300.0), draw.between(30.0, 120.0)
    found, time = [], draw.onset
    while time < draw.seconds:
        end = time + busy * draw.between(0.7, 1.4)
        found.append((time, end))
        time = end + resting * draw.between(0.7, 1.4)
    return found


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "another process works on the GPU of one replica", _plan)
