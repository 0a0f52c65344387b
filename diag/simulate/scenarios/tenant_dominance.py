"""One tenant sends most of the work; the others, whose demand is what it was, wait behind it."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import deciding, told, with_load
from diag.simulate.scenarios.machines import work
from diag.simulate.scenarios.service import healthy
from diag.simulate.scenarios.sizing import overload

__all__ = ["SCENARIO", "plan"]


def plan(draw: Draw) -> Plan:
    """The whole service gets as much as in ``load_burst``, but all that is new is one tenant's."""
    made, factor = overload(healthy(draw, "tenant_dominance"), draw, 0.85, 1.7)
    tenant = draw.pick(made.clients).tenant
    own = 1.0 + (factor - 1.0) / _share(made, tenant)
    made = with_load(made, draw.onwards(1.0, own, ramp_ratio=0.25), [tenant])
    named = made.shown.records
    made = told(
        made,
        causes=("tenant_dominance",),
        accept=() if named else ("load_burst",),
        onset=draw.onset,
        severity=draw.severity,
        scope={"tenants": (tenant,)} if named else {},
    )
    return deciding(made, named, "request records, which carry the tenant")


def _share(plan: Plan, tenant: str) -> float:
    """The tenant's part of the GPU time that is asked for, 0 … 1."""
    machine, caching = plan.replicas[0].machine, plan.replicas[0].settings.prefix_caching
    spent: dict[str, float] = {}
    for client in plan.clients:
        asked = work((client,), caching)
        per_request = asked.prefill_seconds(machine) + asked.output * asked.sequence_seconds(machine)
        spent[client.tenant] = spent.get(client.tenant, 0.0) + asked.requests_per_second * per_request
    return max(spent[tenant] / sum(spent.values()), 0.02)


SCENARIO = Scenario(
    "tenant_dominance", "tenant_dominance", "cause", "one tenant takes most of the service", plan
)
