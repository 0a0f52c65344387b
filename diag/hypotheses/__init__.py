"""The table of contents: one root cause a room, in the order of the catalogue.

A room holds a ``CARD`` (what it is), ``NEEDS`` (without which nothing can be said) and ``examine``
(what it sees in a view). Rooms never import each other; only ``diag.triage`` compares them.
"""

from __future__ import annotations

from diag.hypotheses import (
    abandoned_requests,
    client_limit,
    config_change,
    context_growth,
    cuda_graph_gap,
    engine_restart,
    engine_stall,
    fabric_flap,
    gpu_hardware_fault,
    gpu_link_degraded,
    grammar_stall,
    head_of_line_blocking,
    host_cpu_starvation,
    host_memory_leak,
    kv_block_leak,
    kv_cache_exhaustion,
    kv_transfer_failure,
    load_burst,
    long_outputs,
    network_latency,
    noisy_neighbour,
    numa_misplacement,
    oversized_request,
    port_conflict,
    power_cap,
    prefill_interference,
    prefix_cache_broken,
    prefix_cache_off,
    prefix_cache_scattered,
    proxy_limit,
    routing_hotspot,
    runtime_pauses,
    sequence_limit,
    slow_gpu,
    spec_decode_collapse,
    stale_cache_peer,
    telemetry_fault,
    tenant_dominance,
    thermal_throttle,
)
from diag.hypotheses.registry import Hypothesis
from diag.hypotheses.unknown import CARD as UNKNOWN
from diag.model import Card

__all__ = ["CARDS", "HYPOTHESES", "UNKNOWN", "needs"]

HYPOTHESES: tuple[Hypothesis, ...] = (
    # Traffic and sessions
    Hypothesis(context_growth.CARD, context_growth.NEEDS, context_growth.examine),
    Hypothesis(kv_cache_exhaustion.CARD, kv_cache_exhaustion.NEEDS, kv_cache_exhaustion.examine),
    Hypothesis(prefix_cache_off.CARD, prefix_cache_off.NEEDS, prefix_cache_off.examine, trigger=False),
    Hypothesis(prefix_cache_broken.CARD, prefix_cache_broken.NEEDS, prefix_cache_broken.examine),
    Hypothesis(prefix_cache_scattered.CARD, prefix_cache_scattered.NEEDS, prefix_cache_scattered.examine),
    Hypothesis(load_burst.CARD, load_burst.NEEDS, load_burst.examine),
    Hypothesis(head_of_line_blocking.CARD, head_of_line_blocking.NEEDS, head_of_line_blocking.examine),
    Hypothesis(prefill_interference.CARD, prefill_interference.NEEDS, prefill_interference.examine),
    Hypothesis(tenant_dominance.CARD, tenant_dominance.NEEDS, tenant_dominance.examine),
    Hypothesis(abandoned_requests.CARD, abandoned_requests.NEEDS, abandoned_requests.examine),
    Hypothesis(long_outputs.CARD, long_outputs.NEEDS, long_outputs.examine),
    Hypothesis(sequence_limit.CARD, sequence_limit.NEEDS, sequence_limit.examine),
    # Engine
    Hypothesis(oversized_request.CARD, oversized_request.NEEDS, oversized_request.examine),
    Hypothesis(engine_stall.CARD, engine_stall.NEEDS, engine_stall.examine),
    Hypothesis(kv_block_leak.CARD, kv_block_leak.NEEDS, kv_block_leak.examine),
    Hypothesis(cuda_graph_gap.CARD, cuda_graph_gap.NEEDS, cuda_graph_gap.examine),
    Hypothesis(spec_decode_collapse.CARD, spec_decode_collapse.NEEDS, spec_decode_collapse.examine),
    Hypothesis(grammar_stall.CARD, grammar_stall.NEEDS, grammar_stall.examine),
    Hypothesis(engine_restart.CARD, engine_restart.NEEDS, engine_restart.examine),
    Hypothesis(port_conflict.CARD, port_conflict.NEEDS, port_conflict.examine),
    Hypothesis(config_change.CARD, config_change.NEEDS, config_change.examine),
    # GPU
    Hypothesis(thermal_throttle.CARD, thermal_throttle.NEEDS, thermal_throttle.examine),
    Hypothesis(power_cap.CARD, power_cap.NEEDS, power_cap.examine),
    Hypothesis(noisy_neighbour.CARD, noisy_neighbour.NEEDS, noisy_neighbour.examine),
    Hypothesis(gpu_hardware_fault.CARD, gpu_hardware_fault.NEEDS, gpu_hardware_fault.examine),
    Hypothesis(gpu_link_degraded.CARD, gpu_link_degraded.NEEDS, gpu_link_degraded.examine),
    Hypothesis(slow_gpu.CARD, slow_gpu.NEEDS, slow_gpu.examine),
    # Host
    Hypothesis(host_cpu_starvation.CARD, host_cpu_starvation.NEEDS, host_cpu_starvation.examine),
    Hypothesis(runtime_pauses.CARD, runtime_pauses.NEEDS, runtime_pauses.examine),
    Hypothesis(numa_misplacement.CARD, numa_misplacement.NEEDS, numa_misplacement.examine),
    Hypothesis(host_memory_leak.CARD, host_memory_leak.NEEDS, host_memory_leak.examine),
    # Network
    Hypothesis(network_latency.CARD, network_latency.NEEDS, network_latency.examine),
    Hypothesis(proxy_limit.CARD, proxy_limit.NEEDS, proxy_limit.examine),
    Hypothesis(client_limit.CARD, client_limit.NEEDS, client_limit.examine),
    Hypothesis(fabric_flap.CARD, fabric_flap.NEEDS, fabric_flap.examine),
    Hypothesis(kv_transfer_failure.CARD, kv_transfer_failure.NEEDS, kv_transfer_failure.examine),
    Hypothesis(stale_cache_peer.CARD, stale_cache_peer.NEEDS, stale_cache_peer.examine),
    Hypothesis(routing_hotspot.CARD, routing_hotspot.NEEDS, routing_hotspot.examine),
    # Telemetry
    Hypothesis(telemetry_fault.CARD, telemetry_fault.NEEDS, telemetry_fault.examine),
)
"""Every judged hypothesis. ``unknown`` has a card but no room: it stands when nothing else does."""

CARDS: dict[str, Card] = {**{h.card.id: h.card for h in HYPOTHESES}, UNKNOWN.id: UNKNOWN}


def needs(id: str) -> tuple[tuple[str, ...], ...]:
    """The any-of groups of signals without which ``id`` is not assessable; () for ``unknown``."""
    return next((h.needs for h in HYPOTHESES if h.card.id == id), ())
