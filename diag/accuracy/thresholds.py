"""A checker of the kind that ships with serving stacks: fixed limits on the current values, each with the
cause that its message names.

The rules and their numbers are those that published checkers have in common (KV use above 0.9, more than
five waiting, first token above two seconds, …). No baseline, no onset, no contrast: a limit that is passed
at the end of the window is reported, the one passed by most first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.model import Case, Floats

__all__ = ["RULES", "Rule", "checked"]

_LATEST_SHARE = 0.25  # of the window: what such a tool would see when it is called


@dataclass(frozen=True, slots=True)
class Rule:
    """``signal`` above (or, with ``below``, under) ``limit`` names ``causes``."""

    signal: str
    limit: float
    causes: tuple[str, ...]
    below: bool = False


_CACHE = ("prefix_cache_off", "prefix_cache_broken", "prefix_cache_scattered")

RULES: tuple[Rule, ...] = (
    Rule("kv_cache_usage_ratio", 0.90, ("kv_cache_exhaustion",)),
    Rule("preemptions_per_second", 0.05, ("kv_cache_exhaustion",)),
    Rule("waiting_requests", 5.0, ("load_burst", "sequence_limit")),
    Rule("queue_seconds_mean", 1.0, ("load_burst", "head_of_line_blocking")),
    Rule("prefix_cache_hit_ratio", 0.2, _CACHE, below=True),
    Rule("ttft_seconds_p95", 2.0, ("context_growth", "load_burst")),
    Rule("inter_token_seconds_mean", 0.2, ("thermal_throttle", "power_cap", "noisy_neighbour", "slow_gpu")),
    Rule("prompt_tokens_per_request_p99", 32_000.0, ("context_growth", "oversized_request")),
    Rule("spec_decode_acceptance_ratio", 0.3, ("spec_decode_collapse",), below=True),
    Rule("http_errors_per_second", 0.05, ("proxy_limit", "oversized_request")),
    Rule("aborted_requests_per_second", 0.1, ("abandoned_requests",)),
    Rule("gpu_temperature_celsius", 85.0, ("thermal_throttle",)),
    Rule("gpu_thermal_throttle_ratio", 0.05, ("thermal_throttle",)),
    Rule("gpu_power_throttle_ratio", 0.05, ("power_cap",)),
    Rule("gpu_power_brake_ratio", 0.01, ("power_cap",)),
    Rule("gpu_uncorrectable_ecc_errors", 0.5, ("gpu_hardware_fault",)),
    Rule("gpu_xid_code", 0.5, ("gpu_hardware_fault",)),
    Rule("gpu_foreign_memory_bytes", 1e9, ("noisy_neighbour",)),
    Rule("node_cpu_busy_ratio", 0.90, ("host_cpu_starvation",)),
    Rule("node_memory_available_ratio", 0.10, ("host_memory_leak",), below=True),
    Rule("node_oom_kills_per_second", 1e-4, ("host_memory_leak",)),
    Rule("node_tcp_retransmit_ratio", 0.02, ("network_latency",)),
    Rule("node_infiniband_errors_per_second", 0.01, ("fabric_flap",)),
    Rule("kv_transfer_failures_per_second", 0.01, ("kv_transfer_failure",)),
    Rule("target_up", 0.5, ("telemetry_fault", "engine_restart"), below=True),
)  # fmt: skip


def checked(case: Case) -> tuple[tuple[str, ...], ...]:
    """The causes of every rule that fires, one group a rule, the limit passed by most first."""
    since = case.window.end - _LATEST_SHARE * case.window.seconds
    fired: list[tuple[float, int, tuple[str, ...]]] = []
    for number, rule in enumerate(RULES):
        worst = max(
            (_excess(rule, one.values[one.times >= since]) for one in case.of(rule.signal)), default=0.0
        )
        if worst > 1.0:
            fired.append((-worst, number, rule.causes))
    return tuple(dict.fromkeys(causes for _, _, causes in sorted(fired)))


def _excess(rule: Rule, values: Floats) -> float:
    """The mean as a multiple of the limit (its inverse for a lower limit); 0 when nothing is known."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0
    mean = float(np.mean(known))
    return rule.limit / max(mean, 1e-9) if rule.below else mean / rule.limit
