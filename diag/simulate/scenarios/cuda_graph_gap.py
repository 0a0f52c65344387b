"""Decode leaves the captured batch sizes and stays outside, or runs eager since a restart."""

from __future__ import annotations

import math

from diag.simulate.plan import Plan
from diag.simulate.profiles import step
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import replica_of, told, with_load, with_replica
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import after_restart, batch, every, struck

__all__ = ["SCENARIO", "plan"]


def plan(draw: Draw) -> Plan:
    """Without graphs a decode step takes ``severe(1.25, 2.3)`` times as long."""
    made = healthy(draw, "cuda_graph_gap")
    factor = draw.severe(1.25, 2.3)
    if draw.chance(0.5):
        return _eager(made, draw, factor)
    more = draw.between(1.35, 1.6)
    made, captured = _captured(made, more)
    made = every(made, max_captured_batch=captured, eager_factor=factor, max_num_seqs=256)
    made = with_load(made, draw.onwards(1.0, more, ramp_ratio=0.3))
    return told(
        made,
        causes=("cuda_graph_gap",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": tuple(replica.name for replica in made.replicas)},
    )


def _captured(plan: Plan, more: float) -> tuple[Plan, int]:
    """A largest captured size that the batch seldom reaches before and mostly exceeds after ``more`` traffic;
    slower steps then keep it there."""
    usual, later = batch(plan), batch(plan, more)
    return plan, max(math.ceil(min(usual + 1.5 * math.sqrt(usual), 0.5 * (usual + later))), 2)


def _eager(plan: Plan, draw: Draw, factor: float) -> Plan:
    """Graph capture fails, or is switched off, at a restart."""
    plan = every(plan, eager_factor=factor)
    names = struck(plan, draw)
    text = draw.pick(("enforce-eager while looking for a crash", "engine image renewed"))
    plan = after_restart(plan, draw, names, text=text if draw.chance(0.7) else "")
    for name in names:
        since = max(restart.time for restart in replica_of(plan, name).restarts)
        plan = with_replica(plan, name, eager=step(since, 0.0, 1.0))
    return told(
        plan,
        causes=("cuda_graph_gap", "config_change"),
        accept=("config_change",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"instances": names},
    )


SCENARIO = Scenario("cuda_graph_gap", "cuda_graph_gap", "cause", "decode runs without CUDA graphs", plan)
