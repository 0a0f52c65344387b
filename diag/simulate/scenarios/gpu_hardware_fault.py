"""A card fails: memory errors or a lost bus kill the engine, or the driver hangs under it."""

from __future__ import annotations

from diag.simulate.plan import Plan, Restart
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, gpu_names, told, with_card, with_replica
from diag.simulate.scenarios.places import one_replica
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "gpu_hardware_fault"
_BUS_LOST, _UNCORRECTABLE, _ROW_REMAP, _DRIVER_HANG = 79, 48, 63, 119


def afflict(plan: Plan, draw: Draw) -> Plan:
    """From the onset on the card fails again and again; each failure takes the engine down for a while."""
    struck = one_replica(plan, draw)
    (replica,) = struck.replicas
    gpu = draw.pick(replica.gpus)
    code = draw.pick((_BUS_LOST, _UNCORRECTABLE, _DRIVER_HANG))
    down = draw.severe(70.0, 280.0)
    failures = _failures(draw, down)
    xids = [(time, code) for time in failures]
    if code == _UNCORRECTABLE:
        xids = [pair for time in failures for pair in ((time, code), (time + 1.0, _ROW_REMAP))]
    plan = with_card(
        plan,
        replica.host,
        gpu,
        xids=tuple(xids),
        uncorrectable_errors=tuple(failures) if code == _UNCORRECTABLE else (),
    )
    # A driver that hangs answers nothing for a while before somebody kills the engine.
    hung = 60.0 if code == _DRIVER_HANG else 0.5
    plan = with_replica(
        plan,
        replica.name,
        restarts=tuple(Restart(time + hung, down, reason="xid") for time in failures),
        hangs=tuple((time, time + hung) for time in failures) if code == _DRIVER_HANG else (),
    )
    scope = {"instances": struck.instances, "gpus": (gpu_names(replica)[replica.gpus.index(gpu)],)}
    causes = (_ID, "engine_restart")
    plan = told(plan, causes=causes, onset=draw.onset, severity=draw.severity, scope=scope)
    told_of = plan.shown.gpu in ("llmdiag", "dcgm") or plan.shown.engine_log
    return deciding(plan, told_of, "whoever reports Xids")


def _failures(draw: Draw, down: float) -> list[float]:
    """Times of the failures: one to four, as severe as it is, with time to come back between them."""
    count = 1 + int(draw.severity * 3.99)
    gap = max(down + 180.0, (draw.seconds - draw.onset) / (count + 1))
    times = [draw.onset + number * gap for number in range(count)]
    return [time for time in times if time + 60.0 < draw.seconds]


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "a failing card takes its engine down", _plan)
