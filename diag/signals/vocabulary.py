"""The canonical signals: one name, one unit, which way is worse, and what absence means.

Names end in their unit; ``_ratio`` is 0 … 1. A signal belongs to a *scope*, the kind of thing it
describes: an engine instance, a GPU, a node, a scrape target. ``floor`` is the smallest shift that
an operator would call a change, ``relative`` says whether it is a natural-log ratio or a
difference in the signal's unit (series that rest at zero need a difference). The floors follow
the published prototype's table where it has the signal, else the reason stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from diag.errors import UnknownSignal

__all__ = ["SIGNALS", "Scope", "Signal", "Worse", "signal"]


class Worse(StrEnum):
    """Which way of moving is bad for users, all else equal."""

    UP = "up"
    DOWN = "down"
    EITHER = "either"
    NEITHER = "neither"


class Scope(StrEnum):
    """What a series of the signal describes."""

    ENGINE = "engine"
    GPU = "gpu"
    NODE = "node"
    TARGET = "target"
    REQUESTS = "requests"


@dataclass(frozen=True, slots=True)
class Signal:
    """One canonical signal. ``absence`` completes "when it is missing, …"."""

    name: str
    unit: str
    scope: Scope
    worse: Worse
    floor: float
    relative: bool
    meaning: str
    absence: str


_ENGINE_ABSENCE = "the engine's /metrics is not scraped, or its version does not export it"
_GPU_ABSENCE = "no GPU exporter is scraped: run diag-exporter gpu (or dcgm-exporter, nvidia_gpu_exporter) on the GPU nodes"
_NODE_ABSENCE = "no node_exporter is scraped on the engine's host"
_RECORDS_ABSENCE = "no request records: give --requests FILE (JSON lines, LiteLLM, nginx JSON log)"


def _engine(
    name: str, unit: str, worse: Worse, floor: float, meaning: str,
    absence: str = _ENGINE_ABSENCE, *, relative: bool = False,
) -> Signal:  # fmt: skip
    return Signal(name, unit, Scope.ENGINE, worse, floor, relative, meaning, absence)


def _gpu(
    name: str, unit: str, worse: Worse, floor: float, meaning: str,
    absence: str = _GPU_ABSENCE, *, relative: bool = False,
) -> Signal:  # fmt: skip
    return Signal(name, unit, Scope.GPU, worse, floor, relative, meaning, absence)


def _node(
    name: str, unit: str, worse: Worse, floor: float, meaning: str,
    absence: str = _NODE_ABSENCE, *, relative: bool = False,
) -> Signal:  # fmt: skip
    return Signal(name, unit, Scope.NODE, worse, floor, relative, meaning, absence)


def _records(
    name: str, unit: str, worse: Worse, floor: float, meaning: str,
    absence: str = _RECORDS_ABSENCE, *, relative: bool = False,
) -> Signal:  # fmt: skip
    return Signal(name, unit, Scope.REQUESTS, worse, floor, relative, meaning, absence)


_UP, _DOWN, _EITHER, _NEITHER = Worse.UP, Worse.DOWN, Worse.EITHER, Worse.NEITHER

_ALL: tuple[Signal, ...] = (
    # What users feel. Floors: half again as long (0.4 in logs) is noticed; the judgement adds
    # absolute floors, since 20 ms that become 40 ms are no incident.
    _engine("ttft_seconds_mean", "seconds", _UP, 0.4, "time to first token, mean", relative=True),
    _engine("ttft_seconds_p50", "seconds", _UP, 0.4, "time to first token, median", relative=True),
    _engine("ttft_seconds_p95", "seconds", _UP, 0.5, "time to first token, 95th percentile", relative=True),
    _engine("inter_token_seconds_mean", "seconds", _UP, 0.15, "time between tokens, mean", relative=True),
    _engine("inter_token_seconds_p99", "seconds", _UP, 0.4, "time between tokens, 99th percentile", relative=True),
    _engine("e2e_seconds_mean", "seconds", _UP, 0.4, "whole answer, finished requests, mean", relative=True),
    _engine("e2e_seconds_p95", "seconds", _UP, 0.5, "whole answer, finished requests, 95th percentile", relative=True),
    # Where the time goes, as the engine measured it (finished requests).
    _engine("queue_seconds_mean", "seconds", _UP, 0.1, "waiting before the first scheduling, mean"),
    _engine("prefill_seconds_mean", "seconds", _UP, 0.1, "from first scheduling to first token, mean; holds recomputation after preemption"),
    _engine("decode_seconds_mean", "seconds", _UP, 0.4, "first to last token, mean", relative=True),
    # How much work arrives and how it is shaped.
    _engine("first_tokens_per_second", "per second", _NEITHER, 0.35, "requests that got their first token", relative=True),
    _engine("finished_requests_per_second", "per second", _DOWN, 0.35, "requests that finished", relative=True),
    _engine("http_requests_per_second", "per second", _NEITHER, 0.35, "HTTP requests answered by the API server's inference routes", relative=True),
    _engine("http_errors_per_second", "per second", _UP, 0.05, "HTTP 5xx answers"),
    _engine("aborted_requests_per_second", "per second", _UP, 0.05, "requests the engine counted as aborted or failed (vLLM V1 counts no client departure)"),
    _engine("rejected_requests_per_second", "per second", _UP, 0.05, "requests refused at admission"),
    _engine("prompt_tokens_per_second", "tokens per second", _NEITHER, 0.35, "prompt tokens, cached ones included", relative=True),
    _engine("computed_prompt_tokens_per_second", "tokens per second", _NEITHER, 0.35, "prompt tokens that were computed, not found in a cache", relative=True),
    _engine("generation_tokens_per_second", "tokens per second", _DOWN, 0.35, "answer tokens", relative=True),
    _engine("prompt_tokens_per_request_mean", "tokens", _UP, 0.30, "prompt length, mean", relative=True),
    _engine("prompt_tokens_per_request_p50", "tokens", _UP, 0.30, "prompt length, median (histogram bounds 1-2-5: coarse)", relative=True),
    _engine("prompt_tokens_per_request_p99", "tokens", _UP, 0.60, "prompt length, 99th percentile (coarse)", relative=True),
    _engine("computed_tokens_per_request_mean", "tokens", _UP, 0.30, "prompt tokens computed for a request, mean", relative=True),
    _engine("output_tokens_per_request_mean", "tokens", _NEITHER, 0.30, "answer length, finished requests, mean", relative=True),
    _engine("step_tokens_mean", "tokens", _NEITHER, 0.40, "tokens per engine step, mean", relative=True),
    _engine("steps_per_second", "per second", _NEITHER, 0.40, "engine steps", relative=True),
    # The engine's state: mediators, never roots.
    _engine("running_requests", "requests", _UP, 0.40, "requests in the running batch", relative=True),
    _engine("running_requests_max", "requests", _UP, 0.40, "most requests in the running batch over the window", relative=True),
    _engine("waiting_requests", "requests", _UP, 0.80, "requests waiting for admission"),
    _engine("waiting_for_capacity_requests", "requests", _UP, 0.80, "requests waiting for KV blocks, slots or budget"),
    _engine("waiting_deferred_requests", "requests", _UP, 0.80, "requests waiting for something else (adapter, transfer, grammar)"),
    _engine("kv_cache_usage_ratio", "ratio", _UP, 0.20, "KV pool in use, largest over the window (evictable cached blocks count as free)"),
    _engine("preemptions_per_second", "per second", _UP, 0.15, "requests evicted from the running batch and recomputed (or swapped) later"),
    _engine("prefix_cache_query_tokens_per_second", "tokens per second", _NEITHER, 0.35, "tokens looked up in the prefix cache; 0 while caching is off", relative=True),
    _engine("prefix_cache_hit_ratio", "ratio", _DOWN, 0.15, "share of looked-up tokens that were cached",
            "prefix caching is off, no request came, or the version does not export it"),
    _engine("spec_decode_acceptance_ratio", "ratio", _DOWN, 0.10, "draft tokens accepted", "speculative decoding is off"),
    _engine("spec_decode_accepted_length_tokens", "tokens", _DOWN, 0.15, "tokens that one verified draft gives, its own included", "speculative decoding is off", relative=True),
    _engine("grammar_queue_requests", "requests", _UP, 0.80, "structured-output requests that wait for their grammar",
            "only SGLang counts them; vLLM holds them among the deferred ones"),
    _engine("eager_decode_ratio", "ratio", _UP, 0.10, "share of decode steps that ran without a CUDA graph",
            "only SGLang counts them; vLLM's start-up log tells the captured sizes (--log FILE)"),
    _engine("adapter_slots_used_ratio", "ratio", _UP, 0.20, "LoRA adapter slots in use", "LoRA is off, or the engine shows no slots"),
    _engine("kv_transfer_failures_per_second", "per second", _UP, 0.3, "failed or expired KV transfers", "no KV connector is configured"),
    _engine("kv_transfers_per_second", "per second", _NEITHER, 0.35, "KV transfers that came to an end", "no KV connector is configured", relative=True),
    _engine("kv_transfer_seconds_mean", "seconds", _UP, 0.4, "time of a KV transfer, mean", "no KV connector is configured", relative=True),
    _engine("kv_transfer_retries_per_second", "per second", _UP, 0.1, "requests begun anew after a failed KV transfer", "no KV connector is configured, or it counts no retries"),
    _engine("kv_lookup_misses_per_second", "per second", _UP, 0.1, "keys of shared KV that a peer was believed to hold and did not give",
            "no shared KV store is configured, or its version does not count failed keys"),
    _engine("engine_cpu_ratio", "ratio", _NEITHER, 0.20, "CPU seconds a second of the process that serves /metrics (the API server)"),
    _engine("engine_resident_memory_bytes", "bytes", _UP, 0.20, "resident memory of the process that serves /metrics", relative=True),
    _engine("engine_start_time_seconds", "unix seconds", _NEITHER, 1.0, "when that process started"),
    # Facts with numbers; also carried as facts with text (see model.Fact).
    _engine("kv_capacity_tokens", "tokens", _DOWN, 0.10, "size of the KV pool", relative=True),
    # Scrape targets.
    Signal("target_up", "ratio", Scope.TARGET, _DOWN, 0.5, False, "whether the scrape of a target succeeded",
           "the source keeps no `up` series (a bundle of bare pages)"),
    Signal("scrape_seconds", "seconds", Scope.TARGET, _UP, 1.0, False, "how long a scrape took", "the source keeps no scrape_duration_seconds"),
    # GPUs.
    _gpu("gpu_utilization_ratio", "ratio", _NEITHER, 0.12, "share of time with any kernel running"),
    _gpu("gpu_sm_clock_hertz", "hertz", _DOWN, 0.05, "SM clock", relative=True),
    _gpu("gpu_sm_clock_max_hertz", "hertz", _NEITHER, 0.05, "highest SM clock the card can run", relative=True),
    _gpu("gpu_temperature_celsius", "celsius", _UP, 5.0, "core temperature"),
    _gpu("gpu_memory_temperature_celsius", "celsius", _UP, 5.0, "memory temperature"),
    _gpu("gpu_power_watts", "watts", _NEITHER, 50.0, "board power"),
    _gpu("gpu_power_limit_watts", "watts", _DOWN, 10.0, "enforced power limit"),
    _gpu("gpu_thermal_throttle_ratio", "ratio", _UP, 0.08, "share of time a thermal reason held the clock down",
         "the exporter does not export clock-event reasons: run diag-exporter gpu, or add DCGM_FI_DEV_CLOCKS_EVENT_REASONS or DCGM_FI_DEV_THERMAL_VIOLATION to its counters file"),
    _gpu("gpu_power_throttle_ratio", "ratio", _UP, 0.12, "share of time a power cap held the clock down",
         "the exporter does not export clock-event reasons: run diag-exporter gpu, or add DCGM_FI_DEV_CLOCKS_EVENT_REASONS or DCGM_FI_DEV_POWER_VIOLATION to its counters file"),
    _gpu("gpu_power_brake_ratio", "ratio", _UP, 0.02, "share of time an external power brake or hardware slowdown held the clock down",
         "the exporter does not export clock-event reasons: run diag-exporter gpu, or add DCGM_FI_DEV_CLOCKS_EVENT_REASONS to its counters file"),
    _gpu("gpu_memory_used_bytes", "bytes", _UP, 2e9, "memory in use (engines preallocate: always high)"),
    _gpu("gpu_foreign_memory_bytes", "bytes", _UP, 5e8, "memory held by processes that are not an inference engine",
         "the exporter shows no processes: run diag-exporter gpu, or nvidia_gpu_exporter with --query-compute-apps"),
    _gpu("gpu_foreign_sm_ratio", "ratio", _UP, 0.06, "SM time used by processes that are not the serving engine",
         "no exporter shows per-process SM use: run diag-exporter gpu on the GPU nodes"),
    _gpu("gpu_xid_code", "code", _UP, 1.0, "last Xid error code; a change is an event, presence at 0 is not"),
    _gpu("gpu_uncorrectable_ecc_errors", "errors", _UP, 1.0, "uncorrectable memory errors since boot",
         "the exporter does not export ECC counters: run diag-exporter gpu"),
    _gpu("gpu_xid_events", "events", _UP, 1.0, "Xid errors counted so far; a series that rests is no event",
         "the exporter counts no Xids: run diag-exporter gpu, or give the kernel's log with --log FILE"),
    _gpu("gpu_remapped_rows", "rows", _UP, 1.0, "memory rows given up for uncorrectable errors, over the card's life"),
    _gpu("gpu_link_width_ratio", "ratio", _DOWN, 0.2, "PCIe lanes in use, of those that card and slot allow",
         "the exporter does not export the link: run diag-exporter gpu, or add DCGM_FI_DEV_PCIE_LINK_WIDTH and DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH to the counters file"),
    _gpu("gpu_link_generation_ratio", "ratio", _DOWN, 0.15, "PCIe generation in use, of the highest possible; idle links shift down",
         "the exporter does not export the link: run diag-exporter gpu, or add DCGM_FI_DEV_PCIE_LINK_GEN and DCGM_FI_DEV_PCIE_MAX_LINK_GEN to the counters file"),
    # A sound link repeats a packet now and then: one in ten seconds is more than that.
    _gpu("gpu_link_errors_per_second", "per second", _UP, 0.1, "PCIe packets sent again and NVLink errors",
         "the exporter counts no link errors: run diag-exporter gpu, or add DCGM_FI_DEV_PCIE_REPLAY_COUNTER to the counters file"),
    _gpu("gpu_nvlink_active_ratio", "ratio", _DOWN, 0.05, "NVLinks that are up, of those the card has",
         "the card has no NVLink, or the exporter does not tell: run diag-exporter gpu"),
    _gpu("gpu_numa_match_ratio", "ratio", _DOWN, 0.5, "1 if the serving process may run only on CPUs near its GPU, 0 if only on others",
         "no exporter tells where the serving process runs: run diag-exporter gpu"),
    # Hosts.
    _node("node_cpu_busy_ratio", "ratio", _UP, 0.20, "share of CPU time not idle, over the CPUs seen"),
    _node("node_cpu_user_ratio", "ratio", _UP, 0.20, "share of CPU time in user mode (niced work left out: it yields), over the CPUs seen"),
    _node("node_cpu_steal_ratio", "ratio", _UP, 0.05, "share of CPU time taken by the hypervisor"),
    _node("node_cpu_count", "cpus", _NEITHER, 1.0, "CPUs seen"),
    _node("node_load1", "tasks", _UP, 0.40, "runnable or blocked tasks, one-minute mean", relative=True),
    _node("node_cpu_pressure_ratio", "ratio", _UP, 0.15, "share of time some task waited for a CPU"),
    _node("node_memory_pressure_ratio", "ratio", _UP, 0.05, "share of time some task waited for memory"),
    _node("node_io_pressure_ratio", "ratio", _UP, 0.15, "share of time some task waited for IO"),
    _node("node_memory_available_ratio", "ratio", _DOWN, 0.10, "memory available without swapping"),
    _node("node_major_faults_per_second", "per second", _UP, 2.0, "page faults served from disk"),
    _node("node_swap_used_bytes", "bytes", _UP, 1e8, "swap in use"),
    _node("node_oom_kills_per_second", "per second", _UP, 0.001, "processes killed for memory"),
    _node("node_tcp_retransmit_ratio", "ratio", _UP, 0.02, "TCP segments sent again"),
    _node("node_network_drops_per_second", "per second", _UP, 1.0, "packets dropped or in error"),
    _node("node_infiniband_errors_per_second", "per second", _UP, 0.01, "InfiniBand link downs, recoveries and port errors", "the node has no InfiniBand device"),
    # One link down in half an hour is news: sound links have none.
    _node("node_infiniband_link_downs_per_second", "per second", _UP, 0.0005, "InfiniBand links that went down", "the node has no InfiniBand device"),
    _node("node_infiniband_port_state", "code", _DOWN, 0.2, "state of the InfiniBand ports, mean: 4 active, 1 down", "the node has no InfiniBand device"),
    _node("node_numa_remote_ratio", "ratio", _UP, 0.10, "share of memory taken by processes that run on another NUMA node",
          "node_exporter's NUMA collector is off: start it with --collector.meminfo_numa"),
    # Per-request records: what no metric carries. They are computed from the records, not fetched.
    _records("arrivals_per_second", "per second", _NEITHER, 0.35, "requests sent", relative=True),
    _records("sessions_per_second", "per second", _NEITHER, 0.35, "sessions begun", relative=True),
    _records("client_ttft_seconds", "seconds", _UP, 0.4, "time to first token as the client saw it", relative=True),
    _records("client_duration_seconds", "seconds", _UP, 0.4, "whole answer as the client saw it", relative=True),
    _records("client_gap_seconds", "seconds", _UP, 0.10, "time to first token outside the engine: client's minus engine's own"),
    _records("gateway_connect_seconds", "seconds", _UP, 0.10, "the gateway's time to connect to its upstream", "no gateway log with upstream times: give --requests FILE --requests-preset nginx"),
    _records("gateway_wait_seconds", "seconds", _UP, 0.10, "time an answer took in the gateway beyond its upstream's", "no gateway log with upstream times: give --requests FILE --requests-preset nginx"),
    _records("aborted_ratio", "ratio", _UP, 0.10, "share of requests whose client left"),
    _records("error_ratio", "ratio", _UP, 0.05, "share of requests that failed"),
    _records("request_prompt_tokens", "tokens", _UP, 0.30, "prompt length", relative=True),
    _records("request_cached_tokens", "tokens", _DOWN, 0.30, "prompt tokens found in the prefix cache", "the records carry no cached_tokens: vLLM reports them with --enable-prompt-tokens-details", relative=True),
    _records("request_computed_tokens", "tokens", _UP, 0.30, "prompt tokens not found in the prefix cache", "the records carry no cached_tokens: vLLM reports them with --enable-prompt-tokens-details", relative=True),
    _records("request_output_tokens", "tokens", _NEITHER, 0.30, "answer length", relative=True),
    _records("session_growth_ratio", "ratio", _UP, 0.20, "share of prompt tokens that are history a session resends beyond its usual length", "the records carry no session"),
    _records("giant_prompt_ratio", "ratio", _UP, 0.20, "share of prompt tokens in single requests far above the usual length"),
    _records("top_tenant_ratio", "ratio", _UP, 0.18, "largest tenant's share of tokens", "the records carry no tenant, and no diag-exporter sessions is scraped"),
    _records("structured_ratio", "ratio", _UP, 0.10, "share of requests with a grammar (JSON schema, regular expression, tool call)",
             "the records do not say which requests ask for structured output: add `structured` (0 or 1)"),
    _records("cache_reuse_ratio", "ratio", _DOWN, 0.15, "cached tokens over the tokens that a session's previous turn left behind", "the records carry no session or no cached_tokens"),
    _records("replica_switch_ratio", "ratio", _UP, 0.20, "share of turns that land on another replica than the turn before", "the records carry no session or no instance"),
    # Containers and the chat backend.
    _node("container_cpu_throttled_ratio", "ratio", _UP, 0.10, "share of CFS periods in which a container was throttled",
          "cAdvisor is not scraped"),
    _node("container_memory_working_set_bytes", "bytes", _UP, 0.20, "container memory that cannot be reclaimed",
          "cAdvisor is not scraped", relative=True),
    _node("process_resident_memory_bytes", "bytes", _UP, 0.20, "resident memory of any other process that exports it (chat backend, gateway)",
          "no other process exports process_resident_memory_bytes", relative=True),
)  # fmt: skip

SIGNALS: dict[str, Signal] = {entry.name: entry for entry in _ALL}
"""Every canonical signal by name, in the order in which an operator would read them."""


def signal(name: str) -> Signal:
    """Return the canonical signal ``name``; raise ``UnknownSignal`` if there is none."""
    try:
        return SIGNALS[name]
    except KeyError:
        raise UnknownSignal(
            f"no canonical signal is called {name!r}", hint="see diag/signals/vocabulary.py"
        ) from None
