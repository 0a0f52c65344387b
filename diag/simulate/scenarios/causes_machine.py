"""Scenarios of GPUs, hosts, network and fabric, of the telemetry, of nothing at all, and of two at once."""

from __future__ import annotations

from diag.simulate.scenarios import (
    client_limit,
    double,
    fabric_flap,
    gpu_hardware_fault,
    gpu_link_degraded,
    healthy,
    healthy_change,
    host_cpu_starvation,
    host_memory_leak,
    kv_transfer_failure,
    network_latency,
    noisy_neighbour,
    numa_misplacement,
    power_cap,
    proxy_limit,
    routing_hotspot,
    runtime_pauses,
    slow_gpu,
    stale_cache_peer,
    telemetry_fault,
    thermal_throttle,
    unknown_front,
    unknown_slow,
    unknown_stall,
)
from diag.simulate.scenarios.draw import Scenario

__all__ = ["MACHINE"]

MACHINE: tuple[Scenario, ...] = (
    thermal_throttle.SCENARIO,
    power_cap.SCENARIO,
    noisy_neighbour.SCENARIO,
    gpu_hardware_fault.SCENARIO,
    gpu_link_degraded.SCENARIO,
    slow_gpu.SCENARIO,
    host_cpu_starvation.SCENARIO,
    runtime_pauses.SCENARIO,
    numa_misplacement.SCENARIO,
    host_memory_leak.SCENARIO,
    network_latency.SCENARIO,
    proxy_limit.SCENARIO,
    client_limit.SCENARIO,
    fabric_flap.SCENARIO,
    kv_transfer_failure.SCENARIO,
    stale_cache_peer.SCENARIO,
    routing_hotspot.SCENARIO,
    telemetry_fault.SCENARIO,
    healthy.SCENARIO,
    healthy_change.SCENARIO,
    unknown_slow.SCENARIO,
    unknown_front.SCENARIO,
    unknown_stall.SCENARIO,
    double.SCENARIO,
)
