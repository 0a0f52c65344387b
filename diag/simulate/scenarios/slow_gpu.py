"""One card is slower than its peers with clean clocks and flags."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, gpu_names, told, with_card
from diag.simulate.scenarios.places import one_replica
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "slow_gpu"


def afflict(plan: Plan, draw: Draw) -> Plan:
    """Steps on the card take longer and it draws fewer watts at the same clock."""
    struck = one_replica(plan, draw)
    (replica,) = struck.replicas
    gpu = draw.pick(replica.gpus)
    plan = with_card(plan, replica.host, gpu, slow_factor=draw.onwards(1.0, draw.severe(1.25, 2.5)))
    scope = {"instances": struck.instances, "gpus": (gpu_names(replica)[replica.gpus.index(gpu)],)}
    plan = told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)
    return deciding(plan, bool(plan.shown.gpu), "GPU exporter")


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "a card is slow with clean clocks and flags", _plan)
