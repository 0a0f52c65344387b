"""Which causes a metric would make an operator think of: how rival methods, which rank metrics, get to
rank causes.

As generous as can be. A metric stands for *every* cause it is listed with, and naming the metric counts as
naming the right one of them. What users feel (time to first token and the like) stands for no cause at all
and is passed over instead of counting as a wrong guess. A second metric of the same causes is passed over,
too.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["SUSPECTS", "suspects_of"]

_PREFILL = ("context_growth", "prefix_cache_broken", "prefix_cache_scattered", "prefix_cache_off")
_HITS = ("prefix_cache_broken", "prefix_cache_scattered", "prefix_cache_off", "stale_cache_peer")
_LENGTH = ("context_growth", "head_of_line_blocking", "oversized_request")
_POOL = ("kv_cache_exhaustion", "kv_block_leak")
_QUEUE = ("load_burst", "sequence_limit", "oversized_request", "engine_stall", "routing_hotspot")
_RATE = ("load_burst", "routing_hotspot")
_LEFT = ("abandoned_requests",)
_DECODE = ("cuda_graph_gap", "spec_decode_collapse", "slow_gpu", "prefill_interference", "numa_misplacement")
_CLOCK = ("thermal_throttle", "power_cap")
_GAP = ("network_latency", "proxy_limit", "client_limit")
_CPU = ("host_cpu_starvation", "grammar_stall", "numa_misplacement")
_MEMORY = ("host_memory_leak",)
_RESTART = ("engine_restart", "config_change", "port_conflict")
_TRANSFER = ("kv_transfer_failure", "fabric_flap", "stale_cache_peer")
_LINK = ("gpu_link_degraded",)
_FAULT = ("gpu_hardware_fault",)

SUSPECTS: Mapping[str, tuple[str, ...]] = {
    # Demand
    "first_tokens_per_second": _RATE,
    "finished_requests_per_second": (*_RATE, "engine_stall"),
    "http_requests_per_second": _RATE,
    "prompt_tokens_per_second": (*_RATE, "context_growth"),
    "computed_prompt_tokens_per_second": _PREFILL,
    "generation_tokens_per_second": ("long_outputs", "engine_stall"),
    "prompt_tokens_per_request_mean": _LENGTH,
    "prompt_tokens_per_request_p50": _LENGTH,
    "prompt_tokens_per_request_p99": _LENGTH,
    "computed_tokens_per_request_mean": _PREFILL,
    "output_tokens_per_request_mean": ("long_outputs",),
    "records:arrivals": _RATE,
    "records:prompt_mean": _LENGTH,
    "records:prompt_most": _LENGTH,
    "records:computed_mean": _PREFILL,
    "records:output_mean": ("long_outputs",),
    "records:turn_mean": ("context_growth",),
    "records:top_tenant": ("tenant_dominance",),
    "records:switches": ("prefix_cache_scattered", "routing_hotspot"),
    "top_tenant_ratio": ("tenant_dominance",),
    "giant_prompt_ratio": ("head_of_line_blocking", "oversized_request"),
    "session_growth_ratio": ("context_growth",),
    # The engine's state
    "running_requests": (*_RATE, "long_outputs", "sequence_limit"),
    "running_requests_max": (*_RATE, "long_outputs", "sequence_limit"),
    "waiting_requests": _QUEUE,
    "waiting_for_capacity_requests": (*_QUEUE, *_POOL),
    "waiting_deferred_requests": ("engine_stall", "grammar_stall", "sequence_limit", "kv_transfer_failure"),
    "queue_seconds_mean": (*_QUEUE, "head_of_line_blocking"),
    "prefill_seconds_mean": _PREFILL,
    "kv_cache_usage_ratio": _POOL,
    "preemptions_per_second": _POOL,
    "kv_capacity_tokens": ("config_change", "kv_cache_exhaustion"),
    "prefix_cache_query_tokens_per_second": _HITS,
    "prefix_cache_hit_ratio": _HITS,
    "spec_decode_acceptance_ratio": ("spec_decode_collapse",),
    "inter_token_seconds_mean": _DECODE,
    "inter_token_seconds_p99": _DECODE,
    "decode_seconds_mean": _DECODE,
    "step_tokens_mean": ("prefill_interference", "head_of_line_blocking"),
    "steps_per_second": ("engine_stall", "runtime_pauses", "cuda_graph_gap"),
    "kv_transfer_failures_per_second": _TRANSFER,
    "engine_cpu_ratio": _CPU,
    "engine_resident_memory_bytes": _MEMORY,
    "engine_start_time_seconds": _RESTART,
    # Losses
    "http_errors_per_second": ("proxy_limit", "engine_restart", "gpu_hardware_fault"),
    "rejected_requests_per_second": ("oversized_request", "sequence_limit"),
    "aborted_requests_per_second": _LEFT,
    "records:aborted": _LEFT,
    "records:errors": ("proxy_limit", "engine_restart", "gpu_hardware_fault"),
    "aborted_ratio": _LEFT,
    # GPUs
    "gpu_utilization_ratio": ("engine_stall", "noisy_neighbour", "slow_gpu"),
    "gpu_sm_clock_hertz": _CLOCK,
    "gpu_temperature_celsius": ("thermal_throttle",),
    "gpu_memory_temperature_celsius": ("thermal_throttle",),
    "gpu_power_watts": ("power_cap", "slow_gpu"),
    "gpu_power_limit_watts": ("power_cap",),
    "gpu_thermal_throttle_ratio": ("thermal_throttle",),
    "gpu_power_throttle_ratio": ("power_cap",),
    "gpu_power_brake_ratio": ("power_cap",),
    "gpu_memory_used_bytes": ("noisy_neighbour",),
    "gpu_foreign_memory_bytes": ("noisy_neighbour",),
    "gpu_foreign_sm_ratio": ("noisy_neighbour",),
    "gpu_xid_code": _FAULT,
    "gpu_uncorrectable_ecc_errors": _FAULT,
    # Hosts
    "node_cpu_busy_ratio": _CPU,
    "node_cpu_user_ratio": _CPU,
    "node_cpu_steal_ratio": _CPU,
    "node_load1": _CPU,
    "node_cpu_pressure_ratio": _CPU,
    "container_cpu_throttled_ratio": _CPU,
    "node_memory_pressure_ratio": _MEMORY,
    "node_memory_available_ratio": _MEMORY,
    "node_major_faults_per_second": _MEMORY,
    "node_swap_used_bytes": _MEMORY,
    "node_oom_kills_per_second": _MEMORY,
    "container_memory_working_set_bytes": _MEMORY,
    "process_resident_memory_bytes": (*_MEMORY, "runtime_pauses"),
    "node_tcp_retransmit_ratio": _GAP,
    "node_network_drops_per_second": (*_GAP, "fabric_flap"),
    "node_infiniband_errors_per_second": ("fabric_flap", "kv_transfer_failure"),
    "records:gap": _GAP,
    "client_gap_seconds": _GAP,
    "gateway_connect_seconds": _GAP,
    # Telemetry
    "target_up": ("telemetry_fault", *_RESTART),
    "scrape_seconds": ("telemetry_fault", "host_cpu_starvation"),
}
"""Signal, or ``records:`` and a quantity of the request log, → causes. What is not listed is passed over."""

# ruff: noqa: E501  (a table that wraps cannot be read)
_BY_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("pcie", _LINK), ("nvlink", _LINK), ("replay", _LINK), ("ecc", _FAULT), ("remap", _FAULT), ("xid", _FAULT),
    ("infiniband", _TRANSFER), ("kv_transfer", _TRANSFER), ("external", _TRANSFER), ("numa", _CPU),
    ("throttled", _CPU), ("gateway_waiting", _GAP), ("gateway", _GAP), ("lora", ("sequence_limit",)),
    ("grammar", ("grammar_stall",)), ("spec", ("spec_decode_collapse",)), ("draft", ("spec_decode_collapse",)),
)  # fmt: skip


def suspects_of(signal: str) -> tuple[str, ...]:
    """The causes of a signal: as listed, else by the words in its name; () when it stands for none."""
    if signal in SUSPECTS:
        return SUSPECTS[signal]
    return next((causes for word, causes in _BY_WORDS if word in signal), ())
