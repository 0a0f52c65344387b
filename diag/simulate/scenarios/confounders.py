"""Innocent things that happen meanwhile: each is really there in the telemetry and hurts nobody.

They are drawn without a look at the cause of the incident, so that neither is a hint at the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from diag.simulate.plan import Plan, Restart
from diag.simulate.profiles import Profile, constant, pulses, ramp, spells, step
from diag.simulate.scenarios.draw import Draw
from diag.simulate.scenarios.edits import marked, with_card, with_gateway, with_host, with_load, with_replica
from diag.simulate.scenarios.machines import load_ratio

__all__ = [
    "CONFOUNDERS",
    "batch_job_elsewhere",
    "batch_job_on_cpus",
    "clean_restart",
    "far_memory",
    "harmless_deploy",
    "harmless_retransmits",
    "idle_link",
    "one_xid",
    "resident_drift",
    "short_power_caps",
    "slightly_longer",
    "slightly_more_load",
    "spare_card",
    "sprinkle",
    "stray_errors",
    "symbol_errors",
    "warm_room",
]

_GPUS_PER_HOST = 8
_RESTART_CLEAR_SECONDS = 600.0  # caches are warm again after it


def sprinkle(plan: Plan, draw: Draw) -> Plan:
    """As many different confounders as the dice say; those that have no place in the plan are left out."""
    count = min(int(draw.rng.poisson(draw.conditions.confounders)), len(CONFOUNDERS))
    for number in draw.rng.permutation(len(CONFOUNDERS))[:count].tolist():
        plan = CONFOUNDERS[number](plan, draw)
    return plan


def spare_card(plan: Plan, draw: Draw) -> tuple[str, int] | None:
    """A GPU beside the served ones, on a host of the service; None when all eight are taken."""
    taken = {(r.host, gpu) for r in plan.replicas for gpu in r.gpus} | {place for place, _ in plan.cards}
    free = [
        (host.name, index)
        for host in plan.hosts
        for index in range(_GPUS_PER_HOST)
        if (host.name, index) not in taken
    ]
    if not free:
        return None
    host = draw.pick(tuple(sorted({name for name, _ in free})))
    return min(place for place in free if place[0] == host)


def batch_job_elsewhere(plan: Plan, draw: Draw) -> Plan:
    """A batch job on a GPU that serves nobody."""
    place = spare_card(plan, draw)
    if place is None:
        return plan
    busy = _spells(draw, draw.between(60.0, 400.0), draw.between(60.0, 400.0))
    return with_card(
        plan,
        *place,
        foreign_sm_ratio=spells(busy, 0.0, draw.between(0.5, 0.95)),
        foreign_memory_bytes=spells(busy, 0.5e9, draw.between(8e9, 40e9)),
    )


def batch_job_on_cpus(plan: Plan, draw: Draw) -> Plan:
    """A job on a host's CPUs that leaves plenty of them free."""
    host = draw.pick(plan.hosts)
    busy = _spells(draw, draw.between(120.0, 600.0), draw.between(200.0, 900.0))
    resting = host.other_cpu_ratio.values[0]
    return with_host(plan, host.name, other_cpu_ratio=spells(busy, resting, draw.between(0.35, 0.5)))


def harmless_deploy(plan: Plan, draw: Draw) -> Plan:
    """Somebody deploys something that changes nothing; a third of the time just when it starts to hurt."""
    near = draw.chance(0.35)
    time = draw.onset + draw.between(-120.0, 30.0) if near else draw.between(60.0, draw.seconds - 60.0)
    kind, target, text = draw.pick(
        (
            ("deploy", "chat-frontend", "web frontend 4.18.2: new colour scheme"),
            ("deploy", "billing", "billing exporter 1.9.0"),
            ("config", "grafana", "dashboards provisioned again"),
            ("deploy", "auth-service", "auth-service 2.7.1: log format"),
            ("config", "alertmanager", "on-call rota updated"),
        )
    )
    return marked(plan, max(time, 1.0), kind, target, text)


def resident_drift(plan: Plan, draw: Draw) -> Plan:
    """The backend's memory grows, far from any limit."""
    host = draw.pick(plan.hosts)
    most = draw.between(0.01, 0.05) * host.memory_bytes
    return with_host(plan, host.name, leak_bytes=ramp(0.0, draw.seconds, 0.0, most), leaking="backend")


def stray_errors(plan: Plan, draw: Draw) -> Plan:
    """A few 502s all day long."""
    return with_gateway(plan, error_ratio=constant(draw.between(0.0005, 0.004)))


def symbol_errors(plan: Plan, draw: Draw) -> Plan:
    """A cable with symbol errors that the link repairs."""
    return with_host(
        plan, draw.pick(plan.hosts).name, fabric_errors_per_second=constant(draw.about(0.01, 1.0))
    )


def harmless_retransmits(plan: Plan, draw: Draw) -> Plan:
    """Some more retransmits than usual from some time on, too few to be felt."""
    at = draw.between(0.1, 0.9) * draw.seconds
    raised = step(at, draw.about(1e-4, 5e-4), draw.about(1e-3, 4e-3))
    return with_host(plan, draw.pick(plan.hosts).name, retransmit_ratio=raised)


def warm_room(plan: Plan, draw: Draw) -> Plan:
    """One aisle gets up to 6 °C warmer; its cards stay far below their thresholds."""
    host = draw.pick(plan.hosts)
    start, warmer = draw.between(0.1, 0.7) * draw.seconds, draw.between(3.0, 6.0)
    room = host.room_celsius.values[0]
    plan = with_host(plan, host.name, room_celsius=ramp(start, start + 900.0, room, room + warmer))
    for index in sorted({gpu for r in plan.replicas if r.host == host.name for gpu in r.gpus}):
        plan = with_card(plan, host.name, index, air_celsius=ramp(start, start + 900.0, 27.0, 27.0 + warmer))
    return plan


def short_power_caps(plan: Plan, draw: Draw) -> Plan:
    """Under load a card touches its limit for some seconds now and then, all day long."""
    replica = draw.pick(plan.replicas)
    marks = sorted(draw.between(0.0, draw.seconds) for _ in range(int(draw.rng.integers(3, 9))))
    apart = [mark for mark, before in zip(marks, [-60.0, *marks], strict=False) if mark - before > 20.0]
    limit = pulses(apart, draw.between(4.0, 10.0), 1.0, draw.between(0.7, 0.8))
    return with_card(plan, replica.host, draw.pick(replica.gpus), power_limit_ratio=limit)


def one_xid(plan: Plan, draw: Draw) -> Plan:
    """A program on a card beside the service's ends with an illegal access: one Xid, once."""
    place = spare_card(plan, draw) if draw.chance(0.4) else None
    if place is None:
        return plan
    return with_card(plan, *place, xids=((draw.between(60.0, draw.seconds - 60.0), draw.pick((13, 31, 43))),))


def slightly_more_load(plan: Plan, draw: Draw) -> Plan:
    """A tenant sends a little more from some time on."""
    tenant, at = draw.pick(plan.clients).tenant, draw.between(0.1, 0.9) * draw.seconds
    return with_load(plan, step(at, 1.0, draw.between(1.04, 1.12)), [tenant])


def slightly_longer(plan: Plan, draw: Draw) -> Plan:
    """A tenant's messages or answers get a little longer from some time on."""
    chosen, at = draw.pick(plan.clients), draw.between(0.1, 0.9) * draw.seconds
    field = draw.pick(("prompt_factor", "output_factor"))
    longer: dict[str, Profile] = {field: step(at, 1.0, draw.between(1.04, 1.1))}
    clients = tuple(replace(c, **longer) if c.tenant == chosen.tenant else c for c in plan.clients)  # type: ignore[arg-type]
    return replace(plan, clients=clients)


def clean_restart(plan: Plan, draw: Draw) -> Plan:
    """One of several replicas was restarted for a deploy, long before; the others had room for its load."""
    count, latest = len(plan.replicas), draw.onset - _RESTART_CLEAR_SECONDS
    if count < 3 or load_ratio(plan) * count / (count - 1) > 0.7 or latest < 240.0:
        return plan
    replica = draw.pick(plan.replicas)
    time = draw.between(180.0, latest)
    plan = with_replica(plan, replica.name, restarts=(Restart(time, draw.between(30.0, 60.0)),))
    return marked(plan, time, "restart", replica.name, "node maintenance: engine restarted")


def far_memory(plan: Plan, draw: Draw) -> Plan:
    """A host's memory is far from its CPUs for a third of all accesses, as it always was."""
    return with_host(plan, draw.pick(plan.hosts).name, far_ratio=constant(draw.between(0.2, 0.4)))


def idle_link(plan: Plan, draw: Draw) -> Plan:
    """An idle GPU's link rests at a lower generation."""
    place = spare_card(plan, draw)
    return plan if place is None else with_card(plan, *place, link_ratio=constant(draw.pick((0.25, 0.5))))


def _spells(draw: Draw, busy: float, resting: float) -> list[tuple[float, float]]:
    """Busy spells over the window at hours of their own."""
    found, time = [], draw.between(0.0, resting)
    while time < draw.seconds:
        end = time + busy * draw.between(0.7, 1.3)
        found.append((time, end))
        time = end + resting * draw.between(0.7, 1.3)
    return found


CONFOUNDERS: tuple[Callable[[Plan, Draw], Plan], ...] = (
    batch_job_elsewhere,
    batch_job_on_cpus,
    harmless_deploy,
    resident_drift,
    stray_errors,
    symbol_errors,
    harmless_retransmits,
    warm_room,
    short_power_caps,
    one_xid,
    slightly_more_load,
    slightly_longer,
    clean_restart,
    far_memory,
    idle_link,
)
