"""The serving processes of a host get too little CPU: neighbours take it, or a quota does."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, told, with_host
from diag.simulate.scenarios.places import Struck, on_one_host, with_busy_front
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "host_cpu_starvation"
_IDLE_CPUS, _ENGINE_CPUS, _WORKER_CPUS = 0.3, 1.5, 0.5  # what a busy engine needs, and each of its workers


def afflict(plan: Plan, draw: Draw) -> Plan:
    """From the onset on, all replicas of one host wait for CPUs."""
    struck = on_one_host(plan, draw)
    plan = with_busy_front(plan, draw)
    if draw.chance(0.6):
        plan = with_host(plan, struck.host, cpu_quota_ratio=draw.onwards(1.0, draw.severe(0.8, 0.25)))
    else:
        resting = {host.name: host for host in plan.hosts}[struck.host].other_cpu_ratio.values[0]
        taken = 1.0 - _needed_ratio(plan, struck) * (1.0 - draw.severe(0.5, 0.999))
        plan = with_host(plan, struck.host, other_cpu_ratio=draw.onwards(resting, taken))
    scope = {"instances": struck.instances, "nodes": (struck.host,)}
    plan = told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)
    return deciding(plan, plan.shown.node, "node exporter")


def _needed_ratio(plan: Plan, struck: Struck) -> float:
    """CPUs that the host's engines need when they are busy, of all CPUs."""
    cpus = {host.name: host for host in plan.hosts}[struck.host].cpus
    workers = sum(replica.settings.tensor_parallel for replica in struck.replicas)
    return (len(struck.replicas) * (_IDLE_CPUS + _ENGINE_CPUS) + workers * _WORKER_CPUS) / cpus


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "the serving processes of a host are short of CPU", _plan)
