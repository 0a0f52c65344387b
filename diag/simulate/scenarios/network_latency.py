"""Time is lost before the engine: between client and gateway, between gateway and engine, or on a host."""

from __future__ import annotations

from diag.simulate.plan import Plan
from diag.simulate.scenarios.draw import Draw, Scenario
from diag.simulate.scenarios.edits import told, with_gateway, with_host, with_shown
from diag.simulate.scenarios.places import calls_seen, on_one_host
from diag.simulate.scenarios.service import healthy

__all__ = ["SCENARIO", "afflict"]

_ID = "network_latency"


def afflict(plan: Plan, draw: Draw) -> Plan:
    """Name look-ups, handshakes or lost packets: the engines have nothing to do with it."""
    plan = calls_seen(plan)
    place = draw.pick(("upstream", "outside", "host"))
    lost = draw.severe(0.3, 3.0)
    scope: dict[str, tuple[str, ...]] = {}
    if place == "host":
        struck = on_one_host(plan, draw)
        host = {host.name: host for host in plan.hosts}[struck.host]
        plan = with_host(
            plan,
            host.name,
            network_seconds=draw.onwards(host.network_seconds.values[0], lost),
            retransmit_ratio=draw.onwards(host.retransmit_ratio.values[0], draw.severe(0.01, 0.08)),
            drops_per_second=draw.onwards(0.0, draw.severe(0.5, 30.0)),
        )
        scope = {"instances": struck.instances, "nodes": (host.name,)}
    else:
        resting = plan.gateway.delay_seconds.values[0]
        plan = with_gateway(
            plan,
            delay_seconds=draw.onwards(resting, lost),
            delay_outside=place == "outside",
            jitter_ratio=draw.between(0.2, 0.8),
        )
    if place == "outside" and not plan.shown.records:  # the gateway's clock starts too late for it
        plan = with_shown(plan, records=True, gateway_log=False)
    return told(plan, causes=(_ID,), onset=draw.onset, severity=draw.severity, scope=scope)


def _plan(draw: Draw) -> Plan:
    return afflict(healthy(draw, _ID), draw)


SCENARIO = Scenario(_ID, _ID, "cause", "requests lose time before they reach an engine", _plan)
