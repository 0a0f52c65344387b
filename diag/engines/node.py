"""node_exporter: the host under the engine."""

from __future__ import annotations

from diag.engines.combine import NODE_BY, NODE_LABELS, added, at, rate, share
from diag.engines.registry import Absent, Definition, Engine
from diag.signals.algebra import Aggregate, Binary, Expr, FirstOf, Gauge, Rate, difference, ratio, select

__all__ = ["NODE"]

# Loopback and the far ends of containers' cables say nothing about the network between hosts.
_WIRES = "!~lo|veth.*|cali.*|cni.*|flannel.*|docker.*|br-.*|lxc.*|cilium.*"


def _rate(name: str, **where: str) -> Expr:
    return rate(select(name, **where), NODE_BY)


def _gauge(name: str, over: str = "last") -> Expr:
    return at(Gauge(select(name), "avg" if over == "avg" else "last"), NODE_BY)


def _cpu_share(modes: str) -> Expr:
    return share(ratio(_rate("node_cpu_seconds_total", mode=modes), _rate("node_cpu_seconds_total")))


def _pressure(what: str) -> Definition:
    return Definition(share(_rate(f"node_pressure_{what}_waiting_seconds_total")))


def _drops() -> Expr:
    parts = [
        _rate(f"node_network_{direction}_{what}_total", device=_WIRES)
        for direction in ("receive", "transmit")
        for what in ("drop", "errs")
    ]
    result = parts[0]
    for part in parts[1:]:
        result = Binary("+", result, part)
    return result


def _far(by: tuple[str, ...], node: str) -> Expr:
    """Memory taken across NUMA nodes, of all that was taken."""
    far = rate(select("node_memory_numa_other_node_total", node=node), by)
    near = rate(select("node_memory_numa_local_node_total", node=node), by)
    return share(ratio(far, Binary("+", far, near)))


# The collector labels NUMA nodes ``node``, where other series may bear the machine's name.
_FAR = FirstOf((_far(NODE_BY, "~.*[^0-9].*"), _far(("instance", "nodename"), "~[0-9]*")))
_INFINIBAND = ("link_downed", "link_error_recovery", "port_errors_received")

_SIGNALS: dict[str, Definition | Absent] = {
    "node_cpu_busy_ratio": Definition(_cpu_share("!~idle|iowait"), note="waiting for IO counts as idle"),
    "node_cpu_user_ratio": Definition(
        _cpu_share("user"), note="niced work is left out: it yields to the engine"
    ),
    "node_cpu_steal_ratio": Definition(_cpu_share("steal")),
    "node_cpu_count": Definition(
        Aggregate("count", Rate(select("node_cpu_seconds_total", mode="idle")), NODE_BY)
    ),
    "node_load1": Definition(_gauge("node_load1", "avg")),
    "node_cpu_pressure_ratio": _pressure("cpu"),
    "node_memory_pressure_ratio": _pressure("memory"),
    "node_io_pressure_ratio": _pressure("io"),
    "node_memory_available_ratio": Definition(
        ratio(_gauge("node_memory_MemAvailable_bytes"), _gauge("node_memory_MemTotal_bytes"))
    ),
    "node_major_faults_per_second": Definition(_rate("node_vmstat_pgmajfault")),
    "node_swap_used_bytes": Definition(
        difference(_gauge("node_memory_SwapTotal_bytes"), _gauge("node_memory_SwapFree_bytes")),
        verified=False,
    ),
    "node_oom_kills_per_second": Definition(_rate("node_vmstat_oom_kill")),
    "node_tcp_retransmit_ratio": Definition(
        ratio(_rate("node_netstat_Tcp_RetransSegs"), _rate("node_netstat_Tcp_OutSegs")),
        verified=False,
    ),
    "node_network_drops_per_second": Definition(_drops(), note="both ways, no virtual devices"),
    "node_infiniband_errors_per_second": Definition(
        added(*(_rate(f"node_infiniband_{name}_total") for name in _INFINIBAND))
    ),
    "node_infiniband_link_downs_per_second": Definition(_rate("node_infiniband_link_downed_total")),
    "node_infiniband_port_state": Definition(
        Aggregate("avg", Gauge(select("node_infiniband_state_id"), "min"), NODE_BY),
        note="mean over ports of the lowest state in the window",
    ),
    "node_numa_remote_ratio": Definition(
        _FAR, verified=False, note="the collector is off unless asked for (--collector.meminfo_numa)"
    ),
}

NODE = Engine(
    name="node",
    title="node_exporter",
    probe=select("node_load1", "node_cpu_seconds_total"),
    signals=_SIGNALS,
    labels=NODE_LABELS,
)
