"""The nine symptom pages: what an alert can say before anybody knows the cause.

``causes`` are the hypotheses such an alert most often leads to, the likeliest of a busy service first;
``diag triage`` judges all the others as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SYMPTOMS", "Symptom"]


@dataclass(frozen=True, slots=True)
class Symptom:
    """One symptom: its ``id`` (the name of its runbook), what it is, and what may stand behind it."""

    id: str
    title: str
    component: str
    dashboards: tuple[str, ...]
    causes: tuple[str, ...]


_ALL = (
    Symptom(
        "slow_first_token", "first tokens come late", "slo", ("incident", "sessions", "engine"),
        (
            "load_burst", "context_growth", "kv_cache_exhaustion", "prefix_cache_broken", "prefix_cache_off",
            "prefix_cache_scattered", "head_of_line_blocking", "tenant_dominance", "sequence_limit",
            "thermal_throttle", "noisy_neighbour", "network_latency", "config_change",
        ),
    ),
    Symptom(
        "slow_tokens", "answers flow slowly or in gaps", "slo", ("incident", "engine", "gpu"),
        (
            "prefill_interference", "thermal_throttle", "power_cap", "noisy_neighbour",
            "kv_cache_exhaustion", "cuda_graph_gap", "spec_decode_collapse", "host_cpu_starvation",
            "runtime_pauses", "grammar_stall", "slow_gpu", "gpu_link_degraded", "numa_misplacement",
        ),
    ),
    Symptom(
        "failing_requests", "requests end in errors", "requests", ("incident", "engine"),
        (
            "engine_restart", "engine_stall", "proxy_limit", "gpu_hardware_fault", "kv_transfer_failure",
            "config_change", "host_memory_leak", "load_burst",
        ),
    ),
    Symptom(
        "aborted_requests", "clients leave before the answer ends", "requests", ("incident", "tenants"),
        ("abandoned_requests", "proxy_limit", "client_limit", "load_burst", "long_outputs", "context_growth"),
    ),
    Symptom(
        "standstill", "requests are held and no token comes", "engine", ("incident", "engine"),
        (
            "engine_stall", "oversized_request", "gpu_hardware_fault", "kv_transfer_failure",
            "runtime_pauses", "kv_block_leak", "telemetry_fault",
        ),
    ),
    Symptom(
        "queue_growing", "more requests wait than are let in", "queue", ("incident", "engine", "tenants"),
        (
            "load_burst", "tenant_dominance", "context_growth", "long_outputs", "kv_cache_exhaustion",
            "sequence_limit", "routing_hotspot", "abandoned_requests", "engine_restart", "oversized_request",
        ),
    ),
    Symptom(
        "target_down", "a scrape target does not answer", "meta", ("incident",),
        (
            "engine_restart", "port_conflict", "gpu_hardware_fault", "engine_stall", "host_memory_leak",
            "telemetry_fault",
        ),
    ),
    Symptom(
        "blind_rules", "rules read series that nobody exports", "meta", ("incident",),
        ("telemetry_fault", "config_change"),
    ),
    Symptom(
        "watchdog", "the chain from rule to pager is alive", "meta", ("incident",), ("telemetry_fault",)
    ),
)  # fmt: skip

SYMPTOMS: Mapping[str, Symptom] = {one.id: one for one in _ALL}
"""Every symptom by its id."""
