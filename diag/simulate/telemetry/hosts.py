"""What a host shows: node_exporter, cAdvisor of its engines, and the chat backend that runs there."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from diag.model import Floats
from diag.simulate.observed import Engine, Node, Run
from diag.simulate.plan import Host, Settings
from diag.simulate.telemetry.engines import NAMESPACE, pod_of
from diag.simulate.telemetry.lives import Life, lives_of, living
from diag.simulate.telemetry.page import Page, forever, summed

__all__ = ["backend_page", "containers_page", "node_page"]

_SWAP_BYTES = 8.0 * 2**30
_PAGE_BYTES = 4096.0
_NUMA_PAGES_PER_SECOND = 40_000.0
_PERIODS_PER_SECOND = 10.0
_FAULTS_AT_FULL_STALL = 700.0  # major faults a second at which some task waits for memory all the time
_IB = {"device": "mlx5_0", "port": "1"}
_LINE_BYTES_PER_SECOND = 50e9
_ACTIVE, _DOWN, _LINK_UP, _DISABLED = 4.0, 1.0, 5.0, 3.0


def node_page(run: Run, node: Node) -> Page:
    """node_exporter, ``job="node"``, with the NUMA collector on."""
    host = _host(run, node.name)
    seconds = 0.02 + 0.05 * np.clip(node.rows["cpu_pressure_ratio"], 0.0, 1.0)
    page = Page("node", f"{node.name}:9100", {"node": node.name}, run.times, forever(21.0), seconds)
    _cpus(page, node, host)
    _memory(page, node, host)
    _network(page, node)
    _numa(page, node)
    if run.plan.fabric is not None:
        _infiniband(page, run, node)
    return page


def _host(run: Run, name: str) -> Host:
    return next(host for host in run.plan.hosts if host.name == name)


def _cpus(page: Page, node: Node, host: Host) -> None:
    """All CPUs are equally busy; what is rare is told of the first one alone."""
    rows = node.rows
    busy = np.clip(rows["cpu_busy_ratio"], 0.0, 1.0)
    rates = {"user": 0.8 * busy, "system": 0.2 * busy, "idle": 1.0 - busy}
    for mode, rate in rates.items():
        row = summed(page.times, rate)
        for cpu in range(host.cpus):
            page.counter("node_cpu_seconds_total", row, 2, cpu=str(cpu), mode=mode)
    nothing = np.zeros(page.times.shape)
    for mode in ("iowait", "irq", "nice", "softirq", "steal"):
        page.counter("node_cpu_seconds_total", nothing, 2, cpu="0", mode=mode)
    page.measured("node_load1", rows["load"], 2)
    waiting = summed(page.times, np.clip(rows["cpu_pressure_ratio"], 0.0, 1.0))
    page.counter("node_pressure_cpu_waiting_seconds_total", waiting, 6)


def _memory(page: Page, node: Node, host: Host) -> None:
    rows = node.rows
    page.gauge(
        "node_memory_MemAvailable_bytes", np.minimum(rows["memory_available_bytes"], host.memory_bytes)
    )
    page.gauge("node_memory_MemTotal_bytes", host.memory_bytes)
    swap = np.clip(rows["swap_bytes"], 0.0, _SWAP_BYTES)
    page.gauge("node_memory_SwapTotal_bytes", _SWAP_BYTES)
    page.gauge("node_memory_SwapFree_bytes", _SWAP_BYTES - swap)
    out = np.maximum.accumulate(swap) / _PAGE_BYTES
    page.counter("node_vmstat_pgmajfault", rows["major_faults"])
    page.counter("node_vmstat_pswpin", 0.7 * rows["major_faults"])
    page.counter("node_vmstat_pswpout", out)
    page.counter("node_vmstat_oom_kill", rows["oom_kills"])
    spans = np.maximum(np.diff(page.times, prepend=page.times[:1] - 1.0), 1e-9)
    faults = np.diff(rows["major_faults"], prepend=rows["major_faults"][:1]) / spans
    stalled = summed(page.times, np.clip(faults / _FAULTS_AT_FULL_STALL, 0.0, 1.0))
    page.counter("node_pressure_memory_waiting_seconds_total", stalled, 6)
    page.counter("node_pressure_memory_stalled_seconds_total", 0.6 * stalled, 6)
    page.counter("node_pressure_io_waiting_seconds_total", 0.8 * stalled, 6)


def _network(page: Page, node: Node) -> None:
    rows, nothing = node.rows, np.zeros(page.times.shape)
    page.counter("node_netstat_Tcp_RetransSegs", rows["retransmits"])
    page.counter("node_netstat_Tcp_OutSegs", rows["segments"])
    for device, drops in (("eth0", rows["drops"]), ("lo", nothing)):
        page.counter("node_network_receive_drop_total", drops, device=device)
        for name in ("transmit_drop", "receive_errs", "transmit_errs"):
            page.counter(f"node_network_{name}_total", nothing, device=device)
    page.counter("node_network_transmit_bytes_total", rows["segments"] * 1400.0, device="eth0")


def _numa(page: Page, node: Node) -> None:
    """The collector's own label is called ``node`` as well: Prometheus keeps it as ``exported_node``."""
    far = np.clip(node.rows["far_ratio"], 0.0, 1.0) * _NUMA_PAGES_PER_SECOND
    pages = {
        "numa_hit": np.full(page.times.shape, _NUMA_PAGES_PER_SECOND),
        "numa_miss": np.full(page.times.shape, 0.001 * _NUMA_PAGES_PER_SECOND),
        "local_node": _NUMA_PAGES_PER_SECOND - far,
        "other_node": far,
    }
    for side in ("0", "1"):
        for name, rate in pages.items():
            row = summed(page.times, 0.5 * rate)
            page.counter(f"node_memory_numa_{name}_total", row, exported_node=side)


def _infiniband(page: Page, run: Run, node: Node) -> None:
    rows, times, nothing = node.rows, page.times, np.zeros(page.times.shape)
    fabric = run.plan.fabric
    down = np.zeros(times.shape, dtype=np.bool_)
    for start, end, host in fabric.flaps if fabric is not None else ():
        if host == node.name:
            down |= (times >= start) & (times < end)
    page.gauge("node_infiniband_state_id", np.where(down, _DOWN, _ACTIVE), **_IB)
    page.gauge("node_infiniband_physical_state_id", np.where(down, _DISABLED, _LINK_UP), **_IB)
    page.gauge("node_infiniband_rate_bytes_per_second", _LINE_BYTES_PER_SECOND, **_IB)
    fetched = nothing.copy()
    for replica, engine in zip(run.plan.replicas, run.engines, strict=True):
        if replica.host == node.name:
            fetched = fetched + engine.counters["external_tokens"] * replica.machine.kv_bytes_per_token
    for name, row in {
        "link_downed": rows["fabric_downs"],
        "link_error_recovery": rows["fabric_downs"],
        "symbol_error": rows["fabric_errors"],
        "port_errors_received": nothing,
        "port_discards_transmitted": nothing,
        "port_transmit_wait": nothing,
        "port_data_received_bytes": fetched,
        "port_data_transmitted_bytes": fetched,
    }.items():
        page.counter(f"node_infiniband_{name}_total", row, **_IB)


def containers_page(run: Run, node: Node) -> Page:
    """cAdvisor in the kubelet, ``job="kubelet"``: CPU quota and memory of the engines on the host."""
    seconds = np.full(run.times.shape, 0.03)
    page = Page("kubelet", f"{node.name}:10250", {"node": node.name}, run.times, forever(1.0), seconds)
    engines = {engine.name: engine for engine in run.engines}
    throttled = np.clip(node.rows["cpu_throttled_ratio"], 0.0, 1.0)
    for replica in run.plan.replicas:
        if replica.host == node.name:
            labels = {"namespace": NAMESPACE, "pod": pod_of(replica), "container": "engine"}
            alive = living(lives_of(run, replica), run.times)
            _container(page, engines[replica.name], throttled, alive.astype(np.float64), labels)
    return page


def _container(page: Page, engine: Engine, throttled: Floats, alive: Floats, labels: dict[str, str]) -> None:
    periods = summed(page.times, _PERIODS_PER_SECOND * alive)
    held = summed(page.times, _PERIODS_PER_SECOND * alive * throttled)
    page.counter("container_cpu_cfs_periods_total", periods, **labels)
    page.counter("container_cpu_cfs_throttled_periods_total", held, **labels)
    page.counter("container_cpu_cfs_throttled_seconds_total", 0.05 * held, 3, **labels)
    memory = 18e9 + engine.gauges["resident_bytes"]
    page.gauge("container_memory_working_set_bytes", np.where(alive > 0, memory, np.nan), **labels)


def backend_page(run: Run, node: Node) -> Page:
    """The chat backend, ``job="chat-backend"``; when the kernel kills it, it starts again."""
    kills = node.rows["oom_kills"]
    if _host(run, node.name).leaking != "backend":
        kills = np.zeros_like(kills)
    died = run.times[1:][np.diff(kills) > 0]
    starts = [-6.0 * 3600.0 - crc32(node.name.encode()) % 86_400, *died.tolist()]
    ends = [*died.tolist(), np.inf]
    lives = tuple(Life(since, since, until, Settings()) for since, until in zip(starts, ends, strict=True))
    seconds = np.full(run.times.shape, 0.005)
    number = [host.name for host in run.plan.hosts].index(node.name)
    page = Page("chat-backend", f"chat-backend-{number}:8080", {"node": node.name}, run.times, lives, seconds)
    begun = np.full(run.times.shape, starts[0])
    for start in starts[1:]:
        begun[run.times >= start] = start
    page.gauge("process_resident_memory_bytes", node.rows["backend_resident_bytes"])
    page.gauge("process_start_time_seconds", run.plan.start + begun, 2)
    page.counter("process_cpu_seconds_total", 0.12 * run.times, 2)
    return page
