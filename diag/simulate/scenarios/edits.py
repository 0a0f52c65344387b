"""How a scenario changes a plan: small edits by name, each leaving everything else as it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from diag.simulate.plan import Client, Gpu, Host, Mark, Plan, Replica, Settings, Truth
from diag.simulate.profiles import Profile, product

__all__ = [
    "card_of", "deciding", "gpu_names", "instances_on", "marked", "replica_of", "told", "with_card",
    "with_client", "with_gateway", "with_host", "with_load", "with_replica", "with_settings", "with_shown",
]  # fmt: skip


def replica_of(plan: Plan, name: str) -> Replica:
    """The replica of that name; ``KeyError`` when there is none."""
    return {replica.name: replica for replica in plan.replicas}[name]


def card_of(plan: Plan, host: str, index: int) -> Gpu:
    """What acts on that GPU; a healthy one where the plan names none."""
    return dict(plan.cards).get((host, index), Gpu())


def gpu_names(replica: Replica) -> tuple[str, ...]:
    """Its GPUs as truths name them: ``host/index``."""
    return tuple(f"{replica.host}/{index}" for index in replica.gpus)


def instances_on(plan: Plan, host: str) -> tuple[str, ...]:
    """Names of the replicas on ``host``."""
    return tuple(replica.name for replica in plan.replicas if replica.host == host)


def with_replica(plan: Plan, name: str, **changes: Any) -> Plan:
    """The replica called ``name`` with fields changed; ``KeyError`` when there is none."""
    changed = replace(replica_of(plan, name), **changes)
    return replace(plan, replicas=tuple(changed if r.name == name else r for r in plan.replicas))


def with_settings(plan: Plan, name: str, **changes: Any) -> Plan:
    """The replica called ``name`` with engine flags changed from the start."""
    settings: Settings = replace(replica_of(plan, name).settings, **changes)
    return with_replica(plan, name, settings=settings)


def with_host(plan: Plan, name: str, **changes: Any) -> Plan:
    """The host called ``name`` with fields changed; ``KeyError`` when there is none."""
    host: Host = {host.name: host for host in plan.hosts}[name]
    changed = replace(host, **changes)
    return replace(plan, hosts=tuple(changed if h.name == name else h for h in plan.hosts))


def with_card(plan: Plan, host: str, index: int, **changes: Any) -> Plan:
    """That GPU with what acts on it changed."""
    cards = {**dict(plan.cards), (host, index): replace(card_of(plan, host, index), **changes)}
    return replace(plan, cards=tuple(sorted(cards.items(), key=lambda item: item[0])))


def with_gateway(plan: Plan, **changes: Any) -> Plan:
    """The gateway with fields changed."""
    return replace(plan, gateway=replace(plan.gateway, **changes))


def with_client(plan: Plan, tenant: str, **changes: Any) -> Plan:
    """Every kind of traffic of ``tenant`` with fields changed."""
    clients: tuple[Client, ...] = tuple(
        replace(client, **changes) if client.tenant == tenant else client for client in plan.clients
    )
    return replace(plan, clients=clients)


def with_shown(plan: Plan, **changes: Any) -> Plan:
    """Other exporters."""
    return replace(plan, shown=replace(plan.shown, **changes))


def with_load(plan: Plan, factor: Profile, tenants: Iterable[str] | None = None) -> Plan:
    """Sessions of ``tenants`` (None: all) begin ``factor`` times as often."""
    wanted = {client.tenant for client in plan.clients} if tenants is None else set(tenants)
    clients = tuple(
        replace(client, sessions_per_second=product(client.sessions_per_second, factor))
        if client.tenant in wanted
        else client
        for client in plan.clients
    )
    return replace(plan, clients=clients)


def marked(plan: Plan, time: float, kind: str, target: str, text: str) -> Plan:
    """One more line of events.jsonl; they stay in the order of time."""
    marks = (*plan.marks, Mark(time, kind, target, text))
    return replace(plan, marks=tuple(sorted(marks, key=lambda mark: mark.time)))


def told(
    plan: Plan,
    *,
    causes: tuple[str, ...],
    onset: float | None,
    severity: float,
    accept: tuple[str, ...] = (),
    must_not: tuple[str, ...] = (),
    scope: Mapping[str, tuple[str, ...]] | None = None,
) -> Plan:
    """The plan with its label; the first of ``causes`` is the leading one."""
    truth = Truth(
        causes=causes,
        leading=causes[0] if causes else None,
        accept=accept,
        must_not=must_not,
        scope=tuple((key, names) for key, names in (scope or {}).items() if names),
        onset=onset,
        severity=severity,
    )
    return replace(plan, truth=truth)


def deciding(plan: Plan, there: bool, what: str) -> Plan:
    """Where the telemetry that decides a cause is not ``there``, "unknown" is right as well, and noted."""
    if there:
        return plan
    truth = replace(plan.truth, accept=(*plan.truth.accept, "unknown"))
    return replace(plan, truth=truth, notes=f"{plan.notes} Missing on purpose: {what}.".strip())
