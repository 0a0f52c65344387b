"""A card of a tensor-parallel replica loses lanes or generations of its link."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, gpu_names, told, with_card
from diag.simulate.scenarios.places import Struck
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "gpu_link_degraded"
_LEFT = (1 / 2, 1 / 4, 1 / 8, 1 / 16)


def afflict(plan: Plan, draw: Draw) -> Plan:
    """The link trains down and replays packets; every collective of the replica waits for that card."""
    replica = draw.pick(tuple(r for r in plan.replicas if len(r.gpus) > 1))
    gpu = draw.pick(replica.gpus)
    left = _LEFT[min(int(draw.severity * len(_LEFT)), len(_LEFT) - 1)]
    plan = with_card(
        plan,
        replica.host,
        gpu,
        link_ratio=draw.onwards(1.0, left, ramp_ratio=0.0),
        link_errors_per_second=draw.onwards(0.0, draw.severe(0.2, 30.0), ramp_ratio=0.3),
    )
    name = gpu_names(replica)[replica.gpus.index(gpu)]
    scope = {"instances": Struck((replica,)).instances, "gpus": (name,)}
    plan = told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)
    return deciding(plan, bool(plan.shown.gpu), "GPU exporter")


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID, parallel=(2, 4)), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "the link of a card in a tensor-parallel group trains down", _plan)
