"""Something really changes, and nobody is worse off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from diag.simulate.plan import Plan, Restart
from diag.simulate.profiles import ramp, step
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import marked, told, with_load, with_replica
from diag.simulate.scenarios.machines import load_ratio
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO"]

_ID = "healthy_change"
_ROOMY_LOAD = 0.6


def _more_load(plan: Plan, draw: Draw) -> Plan:
    """More traffic, as far as there is room for it."""
    most = max(_ROOMY_LOAD / load_ratio(plan, draw.onset), 1.05)
    factor = min(draw.between(1.1, 1.35), most)
    return with_load(plan, ramp(draw.onset, draw.onset + draw.between(1.0, 600.0), 1.0, factor))


def _less_load(plan: Plan, draw: Draw) -> Plan:
    return with_load(plan, step(draw.onset, 1.0, draw.between(0.4, 0.85)))


def _shorter(plan: Plan, draw: Draw) -> Plan:
    """Prompts and answers get shorter, as after a new prompt template."""
    shorter = step(draw.onset, 1.0, draw.between(0.6, 0.9))
    clients = tuple(replace(c, prompt_factor=shorter, output_factor=shorter) for c in plan.clients)
    return marked(replace(plan, clients=clients), draw.onset, "deploy", "chat-backend", "prompt template v12")


def _roomier(plan: Plan, draw: Draw) -> Plan:
    """A rolling restart with more sequences and a new patch release, one replica after the other."""
    if len(plan.replicas) < 3 or load_ratio(plan) > 0.45:
        return _announced(plan, draw)
    for number, replica in enumerate(plan.replicas):
        settings = replace(replica.settings, max_num_seqs=2 * replica.settings.max_num_seqs, version="0.32.1")
        time = draw.onset + number * 120.0
        if time > draw.seconds - 120.0:
            break
        restart = Restart(time, 30.0, settings=settings)
        plan = with_replica(plan, replica.name, restarts=(*replica.restarts, restart))
        plan = marked(plan, time, "deploy", replica.name, "engine 0.32.1, max_num_seqs doubled")
    return plan


def _announced(plan: Plan, draw: Draw) -> Plan:
    """A deploy beside the service, at which nothing moves."""
    return marked(plan, draw.onset, "deploy", "chat-backend", "chat-backend 7.3.0: new feedback button")


_CHANGES: tuple[Callable[[Plan, Draw], Plan], ...] = (_more_load, _less_load, _shorter, _roomier, _announced)


def _plan(draw: Draw) -> Plan:
    plan = draw.pick(_CHANGES)(healthy(draw, _ID), draw)
    return told(plan, causes=(), onset=None, severity=0.0, must_not=("config_change", "load_burst"))


SCENARIO = Scenario(_ID, "", "healthy", "load, lengths or settings change and nobody is worse off", _plan)
