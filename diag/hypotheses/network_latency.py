"""Time is lost before or after the engine: balancer, DNS, TLS, retransmits."""

from __future__ import annotations

from collections.abc import Iterator

from diag.detectors.clients import crowding_of_hit, hit_clients
from diag.detectors.cues import Explained, degree_of, flat, rises, stated
from diag.detectors.view import View
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation
from diag.quantities import quantity

CARD = Card(
    id="network_latency",
    title="Time is lost on the way to or from the engine",
    mechanism="Between client and engine something delays bytes: a balancer, DNS, TLS, buffering, packet loss. The engine itself is as fast as before.",
    signs=("clients wait longer, the engine's own first-token time does not move", "connect or upstream queue time up in the gateway's log", "retransmits up"),
    rules_out=("the engine's own time carries the excess", "gateway times stay in milliseconds"),
    look_alikes={"proxy_limit": "in-flight pinned at a limit, 504s at a round timeout", "client_limit": "the client itself is the limit", "host_memory_leak": "the chat backend swaps"},
    mitigations=(
        Mitigation("Send one request from the engine's own host: if it is fast there, go outwards hop by hop.", True),
        Mitigation("Take the slow balancer or zone out of rotation; roll back its last change.", True),
    ),
    next_check="curl -w '%{time_namelookup} %{time_connect} %{time_starttransfer}' against gateway and engine, from the client's side.",
    chain=("node_tcp_retransmit_ratio", "gateway_connect_seconds", "client_gap_seconds", "client_ttft_seconds"),
)  # fmt: skip

NEEDS = (
    ("client_ttft_seconds", "gateway_connect_seconds"),
    ("ttft_seconds_mean", "client_gap_seconds", "gateway_connect_seconds"),
)

_FELT_SECONDS = 0.3  # what a user notices (see ``symptoms.LIMITS``)
_BESIDE = 0.7  # as sure as it gets where the engine holds more than half of the extra time
_CLOCKS_DIFFER = 0.1


def examine(view: View) -> Iterator[Output]:
    """The client's excess against the engine's, then where on the way."""
    phases = view.phases
    if phases.client is not None and phases.gap is not None and phases.client >= 0.05:
        share = max(0.0, min(1.0, phases.gap / phases.client))
        # Where it is of a few milliseconds that nobody feels, it matters little who holds them.
        felt = min(1.0, phases.client / _FELT_SECONDS)
        lost = view.finding("client_gap_seconds")
        total = quantity(phases.client, "seconds")
        if lost is not None:
            outside = (
                f"{quantity(max(phases.gap, 0.0), 'seconds')} pass outside the engine (request by request)"
            )
        else:
            engine = quantity(phases.engine, "seconds") if phases.engine is not None else "an unknown part"
            outside = f"the engine measured {engine} itself"
        text = f"of {total} extra first-token time at the client {outside}"
        beside = _part(phases.gap, share)
        yield stated(
            "gap",
            "client_gap_seconds",
            share >= 0.5 or beside >= 0.5,
            text,
            during=phases.gap,
            unit="seconds",
            degree=max(0.5 + (share - 0.5) * felt, beside),
            decisive=share < 0.25 and beside < 0.5,
        )
        if share >= 0.5:
            yield Explained(share * felt)
    own = view.fleet.get("ttft_seconds_mean")
    if own is not None:
        yield flat("engine_flat", own, "the engine's own first-token time", sign=1)
    hit = hit_clients(view)
    if hit is not None and hit.known >= 2:
        shared = len(hit.names) != 1
        text = f"{len(hit.names)} of {hit.known} clients wait longer"
        yield stated("shared_way", "top_tenant_ratio", shared, text, degree=1.0 if shared else 0.1)
    rank = crowding_of_hit(view)
    if rank is not None:
        text = f"the wait {'grows with' if rank >= 0.25 else 'does not hang on'} how many are under way (rank correlation {rank:.2f})"
        yield stated(
            "not_crowded", "client_ttft_seconds", rank < 0.25, text, degree=1 - degree_of(rank / 0.25)
        )
    yield from _gateway(view)
    resent = view.fleet.get("node_tcp_retransmit_ratio")
    if resent is not None and resent.effect >= 1:
        yield rises("retransmits", resent, "share of TCP segments sent again")


def _part(gap_seconds: float, share: float) -> float:
    """How surely the way costs something of its own, beside an engine that is slow as well: as much as users
    feel, and more than two clocks of the same tokens differ by."""
    return min(_BESIDE, degree_of(gap_seconds / _FELT_SECONDS), degree_of(share / _CLOCKS_DIFFER))


def _gateway(view: View) -> Iterator[Output]:
    """The gateway's own clock: how much of the longer answers passes before it reaches the engine."""
    connect = view.finding("gateway_connect_seconds")
    if connect is None:
        return
    total = view.finding("client_duration_seconds")
    extra = connect.during - connect.before
    yield rises("connect", connect, "the gateway's time to connect to the engine")
    if total is None or total.during - total.before < 0.1:
        return
    share = max(0.0, min(1.0, extra / (total.during - total.before)))
    text = f"connecting is {quantity(share, 'ratio')} of the extra {quantity(total.during - total.before, 'seconds')} of an answer at the gateway"
    yield stated(
        "gateway_share", connect.signal, share >= 0.5, text, during=extra, unit="seconds", degree=share
    )
    if share >= 0.5:
        yield Explained(share)
