"""A service whose replicas share KV over a fabric: the ground of the three fabric scenarios."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.plan import Balancing, Fabric, Plan
from diag.simulate.scenarios.draw import Draw
from diag.simulate.scenarios.edits import with_gateway, with_settings
from diag.simulate.scenarios.service import healthy

__all__ = ["with_fabric"]


def with_fabric(draw: Draw, name: str, *, least_hosts: int = 1) -> Plan:
    """A healthy service whose sessions move between replicas and take their KV along."""
    plan = healthy(draw, name, least_replicas=2, least_hosts=least_hosts)
    balancing = draw.pick((Balancing.LEAST_LOADED, Balancing.ROUND_ROBIN))
    plan = with_gateway(plan, balancing=((0.0, balancing),))
    for replica in plan.replicas:
        plan = with_settings(plan, replica.name, prefix_caching=True)
    fabric = Fabric(
        bytes_per_second=draw.about(5e9, 40e9),
        setup_seconds=draw.about(0.002, 0.02),
        timeout_seconds=draw.severe(0.6, 3.0),
        retries=draw.pick((1, 2, 3)),
    )
    return replace(plan, fabric=fabric)
