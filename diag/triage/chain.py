"""The links from cause to symptom, each with when it moved."""

from __future__ import annotations

from diag.detectors.view import View
from diag.model import ChainLink, Finding
from diag.quantities import change
from diag.signals import SIGNALS
from diag.triage.rank import Judged

__all__ = ["WORDS", "chain_of", "leading_finding"]

# One quantity may be measured twice (by records and by metrics): it is told once.
_SAME: dict[str, str] = {
    "request_prompt_tokens": "prompt length",
    "prompt_tokens_per_request_mean": "prompt length",
    "request_output_tokens": "answer length",
    "output_tokens_per_request_mean": "answer length",
    "request_computed_tokens": "computed tokens per request",
    "computed_tokens_per_request_mean": "computed tokens per request",
    "request_cached_tokens": "cached tokens per request",
    "arrivals_per_second": "request rate",
    "first_tokens_per_second": "request rate",
    "ttft_seconds_mean": "time to first token",
    "ttft_seconds_p95": "time to first token",
    "client_ttft_seconds": "time to first token at the client",
}
WORDS: dict[str, str] = {
    **_SAME,
    "kv_cache_usage_ratio": "KV cache in use (fullest)",
    "preemptions_per_second": "preemptions",
    "waiting_requests": "waiting requests",
    "running_requests": "running requests",
    "queue_seconds_mean": "queue time",
    "prefill_seconds_mean": "prefill time",
    "inter_token_seconds_mean": "time between tokens",
    "e2e_seconds_mean": "answer time",
    "prefix_cache_hit_ratio": "prefix-cache hit rate",
    "gpu_sm_clock_hertz": "SM clock",
    "gpu_temperature_celsius": "GPU temperature",
    "gpu_thermal_throttle_ratio": "thermal throttling",
    "gpu_power_throttle_ratio": "power capping",
    "gpu_power_brake_ratio": "power brake",
    "gpu_foreign_memory_bytes": "memory of foreign processes",
    "gpu_utilization_ratio": "GPU utilisation",
    "target_up": "scrapes answered",
    "top_tenant_ratio": "top tenant's share",
    "giant_prompt_ratio": "share of giant prompts",
    "aborted_ratio": "requests cut by clients",
    "replica_switch_ratio": "turns that change replica",
    "session_growth_ratio": "resent history, share of prompt tokens",
    "client_gap_seconds": "time outside the engine",
    "gateway_connect_seconds": "gateway's connect time",
    "node_cpu_user_ratio": "CPU in user mode",
    "node_load1": "load average",
    "node_cpu_pressure_ratio": "CPU pressure",
    "node_memory_available_ratio": "memory available",
    "node_major_faults_per_second": "major page faults",
    "process_resident_memory_bytes": "resident memory",
    "prompt_tokens_per_request_p99": "prompt length (99th percentile)",
    "finished_requests_per_second": "finished requests",
    "generation_tokens_per_second": "answer tokens",
}
# The chain ends in what users feel, and that began when the symptom did.
_SYMPTOMS = frozenset({"ttft_seconds_mean", "ttft_seconds_p95", "client_ttft_seconds", "e2e_seconds_mean"})
_PEAK = frozenset({"kv_cache_usage_ratio", "preemptions_per_second", "waiting_requests"})


def leading_finding(view: View, name: str) -> Finding | None:
    """The finding of a signal that moved most, fleet-wide or on one thing."""
    merged = view.finding(name)
    each = view.each.get(name, ())
    worst = max(each, key=lambda f: abs(f.effect)) if each else None
    if (merged is not None and merged.moved) or worst is None:
        return merged
    return worst


def chain_of(judged: Judged, view: View) -> tuple[ChainLink, ...]:
    """The card's signals that moved, in causal order, each quantity once."""
    links: list[ChainLink] = []
    told: set[str] = set()
    for name in judged.hypothesis.card.chain:
        found = leading_finding(view, name)
        if found is None or not _moved(found):
            continue
        words = WORDS.get(name, SIGNALS[name].meaning.split(",")[0])
        if words in told:
            continue
        told.add(words)
        onset = view.onset if name in _SYMPTOMS else found.onset or _other_onset(view, words)
        links.append(ChainLink(name, onset, f"{words} {_numbers(found)}"))
    return tuple(links)


def _moved(found: Finding) -> bool:
    if found.signal == "kv_cache_usage_ratio":
        return found.peak >= 0.9 or found.moved
    return found.moved


def _numbers(found: Finding) -> str:
    during = found.peak if found.signal in _PEAK else found.during
    return change(found.before, during, found.unit)


def _other_onset(view: View, words: str) -> float | None:
    """The onset of the same quantity as metrics saw it, where records carry none."""
    for name, alias in _SAME.items():
        if alias == words and (found := view.fleet.get(name)) is not None and found.onset is not None:
            return found.onset
    return None
