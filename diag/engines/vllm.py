"""vLLM, V0 and V1, up to 0.33: how it spells the canonical signals.

Names and lives were read from the sources of 39 releases. Renames stand in one ``Select``, newest
first. What to know when reading: queue, prefill, decode and lengths are of *finished* requests;
first-token and inter-token times are seen at once; a client's departure is in no counter; with
``--disable-log-stats`` only the HTTP series remain.
"""

from __future__ import annotations

from diag.engines.combine import ENGINE_BY, added, at, mean, quantile, rate, same_targets, share
from diag.engines.registry import Absent, Definition, Engine
from diag.signals.algebra import (
    Aggregate,
    Binary,
    Clamp,
    Expr,
    FirstOf,
    Gauge,
    Keep,
    Rate,
    Scale,
    Select,
    difference,
    ratio,
    select,
    total,
)

__all__ = ["VLLM"]

# The production-stack router repeats engines' series under a label ``server``: never count twice.
_RUNNING = select("vllm:num_requests_running", server="")
_WAITING = select("vllm:num_requests_waiting", server="")
_KV_USAGE = select("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_HITS = select("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", server="")
_QUERIES = select("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", server="")
_TTFT = select("vllm:time_to_first_token_seconds")
_BETWEEN = select("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
_E2E = select("vllm:e2e_request_latency_seconds")
_PROMPT = select("vllm:request_prompt_tokens")
_INFERENCE = "~/v1/(chat/completions|completions|responses)|/generate.*"
_ACCEPTED = select("vllm:spec_decode_num_accepted_tokens_total")
_DRAFTED = select("vllm:spec_decode_num_draft_tokens_total")
_DRAFTS = select("vllm:spec_decode_num_drafts_total")


def _rate(*names: str, **where: str) -> Expr:
    return rate(select(*names, **where), ENGINE_BY)


def _mean(*names: str) -> Expr:
    return mean(select(*names), ENGINE_BY)


def _here(expr: Expr) -> Expr:
    return same_targets(expr, _RUNNING, ENGINE_BY)


_HTTP = _here(_rate("http_requests_total", handler=_INFERENCE))
_HTTP_ERRORS = _here(_rate("http_requests_total", handler=_INFERENCE, status="~5.."))
_PROMPT_RATE = _rate("vllm:prompt_tokens_total")

# Before 0.16 nothing counts computed tokens; hits are in tokens under this name since 0.9.2.
_COMPUTED = FirstOf(
    (
        _rate("vllm:prompt_tokens_by_source_total", source="local_compute"),
        Clamp(difference(_PROMPT_RATE, _rate("vllm:prefix_cache_hits_total")), 0.0, float("inf")),
    )
)

# V0 kept a gauge over the last thousand requests, negative while it had nothing to say.
_HIT_RATIO = FirstOf(
    (
        share(ratio(rate(_HITS, ENGINE_BY), rate(_QUERIES, ENGINE_BY))),
        at(Keep(Gauge(select("vllm:gpu_prefix_cache_hit_rate", server="")), 0.0, 1.0), ENGINE_BY),
    )
)

_ACCEPTANCE = FirstOf(
    (
        ratio(rate(_ACCEPTED, ENGINE_BY), rate(_DRAFTED, ENGINE_BY)),
        at(Gauge(select("vllm:spec_decode_draft_acceptance_rate")), ENGINE_BY),
    )
)

# The token of the target model itself, and what was accepted before it.
_LENGTHS = Binary(
    "+",
    rate(_DRAFTS, ENGINE_BY),
    FirstOf((rate(_ACCEPTED, ENGINE_BY), Scale(rate(_DRAFTS, ENGINE_BY), 0.0))),
)

_TRANSFERS = select("vllm:nixl_xfer_time_seconds", "vllm:mooncake_xfer_time_seconds")
_TRANSFER_COUNTS = select("vllm:nixl_xfer_time_seconds_count", "vllm:mooncake_xfer_time_seconds_count")

# One connector at a time; an engine that has neither has no such series.
_TRANSFER_FAILURES = FirstOf(
    (
        added(
            _rate("vllm:nixl_num_failed_transfers_total"),
            _rate("vllm:nixl_num_kv_expired_reqs_total"),
        ),
        added(
            _rate("vllm:mooncake_num_failed_transfers_total"),
            _rate("vllm:mooncake_num_failed_recvs_total"),
            _rate("vllm:mooncake_num_kv_expired_reqs_total"),
        ),
    )
)


def _sum_of(gauge: Select, over: str = "avg") -> Expr:
    return total(Gauge(gauge, "max" if over == "max" else "avg"), ENGINE_BY)


def _latency() -> dict[str, Definition | Absent]:
    return {
        "ttft_seconds_mean": Definition(mean(_TTFT, ENGINE_BY), "0.4.3"),
        "ttft_seconds_p50": Definition(quantile(0.5, _TTFT, ENGINE_BY), "0.4.3"),
        "ttft_seconds_p95": Definition(
            quantile(0.95, _TTFT, ENGINE_BY), "0.4.3", note="up to 0.8.0 the bounds end at 10 s"
        ),
        "inter_token_seconds_mean": Definition(mean(_BETWEEN, ENGINE_BY), "0.4.3"),
        "inter_token_seconds_p99": Definition(
            quantile(0.99, _BETWEEN, ENGINE_BY),
            "0.4.3",
            note="with speculative decoding one observation spans several tokens",
        ),
        "e2e_seconds_mean": Definition(mean(_E2E, ENGINE_BY), "0.4.3"),
        "e2e_seconds_p95": Definition(
            quantile(0.95, _E2E, ENGINE_BY), "0.4.3", note="up to 0.8.0 the bounds end at 60 s"
        ),
        "queue_seconds_mean": Definition(
            _mean("vllm:request_queue_time_seconds"),
            "0.6.6",
            note="finished requests, to the first scheduling; waits after a preemption are not in it",
        ),
        "prefill_seconds_mean": Definition(
            _mean("vllm:request_prefill_time_seconds"), "0.6.6", note="finished requests"
        ),
        "decode_seconds_mean": Definition(
            _mean("vllm:request_decode_time_seconds"), "0.6.6", note="finished requests"
        ),
    }


def _traffic() -> dict[str, Definition | Absent]:
    return {
        "first_tokens_per_second": Definition(_rate("vllm:time_to_first_token_seconds_count"), "0.4.3"),
        "finished_requests_per_second": Definition(
            _rate("vllm:request_success_total"), "0.4.3", note="every finish reason, aborts and errors too"
        ),
        "http_requests_per_second": Definition(
            _HTTP, "0.5.5", note="inference routes only, any status; of targets that are vLLM"
        ),
        "http_errors_per_second": Definition(
            FirstOf((_HTTP_ERRORS, Scale(_HTTP, 0.0))),
            "0.5.5",
            note="the series of a status appears with its first answer: until then it is 0",
        ),
        "aborted_requests_per_second": Definition(
            _rate("vllm:request_success_total", finished_reason="~abort|error"),
            "0.4.3",
            note="V1 counts no client that leaves",
        ),
        "rejected_requests_per_second": Definition(_rate("vllm:admission_rejections_total"), "0.32.0"),
        "prompt_tokens_per_second": Definition(_PROMPT_RATE, "0.4.3"),
        "computed_prompt_tokens_per_second": Definition(
            _COMPUTED, "0.9.2", note="up to 0.14 the prompt tokens less the local cache's hits"
        ),
        "generation_tokens_per_second": Definition(_rate("vllm:generation_tokens_total"), "0.4.3"),
        "prompt_tokens_per_request_mean": Definition(mean(_PROMPT, ENGINE_BY), "0.4.3"),
        "prompt_tokens_per_request_p50": Definition(quantile(0.5, _PROMPT, ENGINE_BY), "0.4.3"),
        "prompt_tokens_per_request_p99": Definition(quantile(0.99, _PROMPT, ENGINE_BY), "0.4.3"),
        "computed_tokens_per_request_mean": Definition(
            _mean("vllm:request_prefill_kv_computed_tokens"), "0.13.0", note="finished requests"
        ),
        "output_tokens_per_request_mean": Definition(_mean("vllm:request_generation_tokens"), "0.4.3"),
        "step_tokens_mean": Definition(
            _mean("vllm:iteration_tokens_total"), "0.6.6", note="since 0.16 without cached tokens"
        ),
        "steps_per_second": Definition(_rate("vllm:iteration_tokens_total_count"), "0.6.6"),
    }


def _state() -> dict[str, Definition | Absent]:
    by_reason = "vllm:num_requests_waiting_by_reason"
    return {
        "running_requests": Definition(_sum_of(_RUNNING), "0.2.7"),
        "running_requests_max": Definition(_sum_of(_RUNNING, "max"), "0.2.7"),
        "waiting_requests": Definition(_sum_of(_WAITING), "0.2.7"),
        "waiting_for_capacity_requests": Definition(_sum_of(select(by_reason, reason="capacity")), "0.20.0"),
        "waiting_deferred_requests": Definition(_sum_of(select(by_reason, reason="deferred")), "0.20.0"),
        "kv_cache_usage_ratio": Definition(
            at(Gauge(_KV_USAGE, "max"), ENGINE_BY),
            "0.2.7",
            note="the largest over the window and over data-parallel engines; it dips between preemptions",
        ),
        "preemptions_per_second": Definition(
            _rate("vllm:num_preemptions_total"), "0.4.3", note="V1 has it since 0.8.0"
        ),
        "prefix_cache_query_tokens_per_second": Definition(
            rate(_QUERIES, ENGINE_BY), "0.7.3", note="up to 0.8.5 in blocks, not tokens"
        ),
        "prefix_cache_hit_ratio": Definition(_HIT_RATIO, "0.5.5"),
        "spec_decode_acceptance_ratio": Definition(_ACCEPTANCE, "0.5.5", verified=False),
        "spec_decode_accepted_length_tokens": Definition(
            ratio(_LENGTHS, rate(_DRAFTS, ENGINE_BY)),
            "0.8.5",
            verified=False,
        ),
        "grammar_queue_requests": Absent("vLLM counts them among the deferred requests"),
        "eager_decode_ratio": Absent("vLLM counts no steps without a CUDA graph"),
        "adapter_slots_used_ratio": Absent(
            "vllm:lora_requests_info carries adapters as labels, its value is a time"
        ),
        "kv_transfer_failures_per_second": Definition(
            _TRANSFER_FAILURES, "0.11.1", verified=False, note="NIXL and Mooncake connectors"
        ),
        "kv_transfers_per_second": Definition(
            rate(_TRANSFER_COUNTS, ENGINE_BY), "0.11.1", verified=False, note="NIXL and Mooncake connectors"
        ),
        "kv_transfer_seconds_mean": Definition(mean(_TRANSFERS, ENGINE_BY), "0.11.1", verified=False),
        "kv_lookup_misses_per_second": Definition(
            _rate("vllm:mooncake_store_operation_failed_keys_total", operation="!~.*(put|save|store).*"),
            "0.22.0",
            verified=False,
            note="Mooncake store: keys that its get did not find where they should be",
        ),
        "kv_transfer_retries_per_second": Absent("vLLM's connectors count no retries"),
        "kv_capacity_tokens": Absent(
            "it is a label of vllm:cache_config_info, so it is carried as the fact kv_capacity_tokens"
        ),
    }


def _process() -> dict[str, Definition | Absent]:
    cpu = total(Rate(select("process_cpu_seconds_total")), ENGINE_BY)
    resident = total(Gauge(select("process_resident_memory_bytes")), ENGINE_BY)
    started = Aggregate("max", Gauge(select("process_start_time_seconds")), ENGINE_BY)
    note = "the API server's process; absent with several API servers"
    return {
        "engine_cpu_ratio": Definition(_here(cpu), "0.4.3", note=note),
        "engine_resident_memory_bytes": Definition(_here(resident), "0.4.3", note=note),
        "engine_start_time_seconds": Definition(_here(started), "0.4.3", note=note),
    }


VLLM = Engine(
    name="vllm",
    title="vLLM",
    probe=_RUNNING,
    signals={**_latency(), **_traffic(), **_state(), **_process()},
    info=select("vllm:cache_config_info"),
    facts={
        "prefix_caching": "enable_prefix_caching",
        "kv_blocks": "num_gpu_blocks",
        "block_size_tokens": "block_size",
        "kv_capacity_tokens": "kv_cache_size_tokens",
    },
)
