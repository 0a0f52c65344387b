"""Fabric and KV transfer: links, transfers over them, and the wires of the host."""

from __future__ import annotations

from dashboards.src import shared
from dashboards.src.boards.machine import RETRANSMITS
from dashboards.src.model import Board, Panel, Row, State
from dashboards.src.queries import HOST, of, raw

__all__ = ["FABRIC"]

_IB_STATES = (
    State(0.0, "no change", "red"),
    State(1.0, "down", "red"),
    State(2.0, "initialising", "orange"),
    State(3.0, "armed", "yellow"),
    State(4.0, "active", "green"),
)
_PORTS = Panel(
    "State of the InfiniBand ports",
    "The worst state in the window by port. Down and up again within a scrape shows in the count beside, not here.",
    "none",
    (raw(f"min_over_time(node_infiniband_state_id{{{HOST}}}[W])", "{{instance}} {{device}}:{{port}}", "node"),),
    kind="state-timeline",
    runbooks=("fabric_flap",),
    alerts=("IBLinkFlapping",),
    states=_IB_STATES,
    maximum=4.0,
)  # fmt: skip
_ERRORS = Panel(
    "InfiniBand errors",
    "Link downs, recoveries and port errors a second, all ports of a host. Sound links have none.",
    "cps",
    of("node_infiniband_errors_per_second"),
    runbooks=("fabric_flap",),
    drill="fabric",
    variable="host",
)
_TRAFFIC = Panel(
    "InfiniBand traffic",
    "Bytes a second by port, received and sent. It falls to nothing where a link is down, and jumps where transfers "
    "are tried again.",
    "Bps",
    (
        raw(
            f"rate(node_infiniband_port_data_received_bytes_total{{{HOST}}}[W])",
            "{{instance}} {{device}}:{{port}} received",
            "node",
        ),
        raw(
            f"rate(node_infiniband_port_data_transmitted_bytes_total{{{HOST}}}[W])",
            "{{instance}} {{device}}:{{port}} sent",
            "node",
        ),
    ),
    width=12,
    runbooks=("fabric_flap",),
    drill="fabric",
    variable="host",
)
_CONGESTION = Panel(
    "Waiting to send",
    "Ticks a second in which a port had data and no credit to send it: congestion, not a broken link.",
    "cps",
    (
        raw(
            f"rate(node_infiniband_port_transmit_wait_total{{{HOST}}}[W])",
            "{{instance}} {{device}}:{{port}}",
            "node",
        ),
    ),
    width=12,
    runbooks=("fabric_flap", "kv_transfer_failure"),
    drill="fabric",
    variable="host",
)
_TRANSFERS = Panel(
    "KV transfers",
    "Transfers that came to an end, a second.",
    "reqps",
    of("kv_transfers_per_second", absent=shared.NO_SGLANG_TRANSFERS),
    runbooks=("kv_transfer_failure",),
    drill="fabric",
)
_SECONDS = Panel(
    "Time of a KV transfer",
    "Mean. Slow and whole is congestion; slow and failing is a path that is lost.",
    "s",
    of("kv_transfer_seconds_mean", absent=shared.NO_SGLANG_TRANSFERS),
    runbooks=("kv_transfer_failure", "fabric_flap"),
    drill="fabric",
)
_RETRIES = Panel(
    "Requests begun anew",
    "After a failed transfer, a second. SGLang alone counts them.",
    "reqps",
    of("kv_transfer_retries_per_second", absent=shared.NO_SGLANG_TRANSFERS),
    runbooks=("kv_transfer_failure",),
    drill="fabric",
)
_STORE = Panel(
    "Shared KV in the store",
    "Bytes that Mooncake's master believes to be held, and its capacity. A client that came back empty while "
    "the bytes stay is believed to hold what it has lost.",
    "bytes",
    (
        raw('master_allocated_bytes{cluster=~"$cluster"}', "{{instance}} held", "mooncake"),
        raw('master_total_capacity_bytes{cluster=~"$cluster"}', "{{instance}} capacity", "mooncake"),
    ),
    runbooks=("stale_cache_peer",),
    drill="fabric",
    variable="host",
)
_DROPS = Panel(
    "Packets dropped or in error",
    "A second, both ways, without virtual devices.",
    "cps",
    of("node_network_drops_per_second"),
    width=12,
    runbooks=("network_latency",),
    drill="fabric",
    variable="host",
)

FABRIC = Board(
    "fabric",
    "llm-diag / Fabric and KV transfer",
    "Links, the KV transfers over them, beliefs about who holds which cache, and the hosts' wires.",
    (
        Row("Links", ("fabric_flap",), (shared.link_downs(), _PORTS, _ERRORS, _TRAFFIC, _CONGESTION)),
        Row(
            "KV transfers",
            ("kv_transfer_failure", "stale_cache_peer"),
            (shared.kv_failures(), _TRANSFERS, _SECONDS, shared.lookup_misses(), _RETRIES, _STORE),
        ),
        Row("Wires", ("network_latency",), (RETRANSMITS, _DROPS)),
    ),
)
