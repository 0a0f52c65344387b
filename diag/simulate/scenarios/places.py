"""Where a cause strikes: one replica, or all of one host."""

from __future__ import annotations

from dataclasses import dataclass

from diag.simulate.plan import Plan, Replica
from diag.simulate.profiles import constant
from diag.simulate.scenarios.draw import Draw
from diag.simulate.scenarios.edits import gpu_names, with_replica, with_shown

__all__ = ["Struck", "calls_seen", "on_one_host", "one_replica", "some_replicas", "with_busy_front"]


@dataclass(frozen=True, slots=True)
class Struck:
    """The replicas that are hit; never none, all of one host unless a scenario says otherwise."""

    replicas: tuple[Replica, ...]

    @property
    def host(self) -> str:
        """Name of the (first) host."""
        return self.replicas[0].host

    @property
    def instances(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(replica.name for replica in self.replicas)

    @property
    def gpus(self) -> tuple[str, ...]:
        """All their GPUs, as truths name them."""
        return tuple(name for replica in self.replicas for name in gpu_names(replica))


def one_replica(plan: Plan, draw: Draw) -> Struck:
    """Any one."""
    return Struck((draw.pick(plan.replicas),))


def on_one_host(plan: Plan, draw: Draw) -> Struck:
    """All replicas of any one host."""
    host = draw.pick(plan.hosts).name
    return Struck(tuple(replica for replica in plan.replicas if replica.host == host))


def some_replicas(plan: Plan, draw: Draw, together_ratio: float = 0.3) -> Struck:
    """One replica, or in ``together_ratio`` of throws all of one host."""
    return on_one_host(plan, draw) if draw.chance(together_ratio) else one_replica(plan, draw)


def calls_seen(plan: Plan) -> Plan:
    """A plan in which somebody records requests: where the engines are well, only callers can tell of it."""
    if plan.shown.records or plan.shown.gateway_log:
        return plan
    return with_shown(plan, records=True)


def with_busy_front(plan: Plan, draw: Draw) -> Plan:
    """API servers that have some work with each request (templates, tokenising), as they always had."""
    front = constant(draw.between(0.02, 0.05))
    for replica in plan.replicas:
        plan = with_replica(plan, replica.name, front_seconds=front)
    return plan
