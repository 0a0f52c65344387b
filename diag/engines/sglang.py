"""SGLang 0.4.6 to 0.5.23: how it spells the canonical signals.

Read from the wheels of ten releases. Scheduler metrics are repeated by tensor- and pipeline-parallel
ranks when all schedulers report, so they are taken as the largest per data-parallel rank and then
summed; the request handler's histograms are summed. With priority scheduling the series without a
priority is the total. Labelled counters do not exist before their first increment.
"""

from __future__ import annotations

from diag.engines.combine import ENGINE_BY, added, at, mean, quantile, rate, same_targets, share
from diag.engines.registry import Absent, Definition, Engine
from diag.signals.algebra import (
    Aggregate,
    Clamp,
    Expr,
    FirstOf,
    Gauge,
    Rate,
    Scale,
    Select,
    difference,
    ratio,
    select,
    total,
)

__all__ = ["SGLANG"]

_RANK_BY = (*ENGINE_BY, "dp_rank")
_RUNNING = select("sglang:num_running_reqs", priority="")
_QUEUED = select("sglang:num_queue_reqs", priority="")
_TTFT = select("sglang:time_to_first_token_seconds")
_BETWEEN = select("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds")
_E2E = select("sglang:e2e_request_latency_seconds")
_PROMPT = select("sglang:prompt_tokens_histogram")
_COMPUTED_PROMPT = select("sglang:uncached_prompt_tokens_histogram")
_PROMPT_RATE = rate(select("sglang:prompt_tokens_total"), ENGINE_BY)
_CACHED_RATE = rate(select("sglang:cached_tokens_total"), ENGINE_BY)


def _over_ranks(expr: Expr) -> Expr:
    return total(at(expr, _RANK_BY), ENGINE_BY)


def _rate(*names: str, **where: str) -> Expr:
    return rate(select(*names, **where), ENGINE_BY)


def _here(expr: Expr) -> Expr:
    return same_targets(expr, _RUNNING, ENGINE_BY)


_HIT_RATIO = FirstOf(
    (
        share(ratio(_CACHED_RATE, _PROMPT_RATE)),
        at(Gauge(select("sglang:cache_hit_rate"), "avg"), ENGINE_BY),
    )
)
_COMPUTED = FirstOf(
    (
        _over_ranks(Rate(select("sglang:realtime_tokens_total", mode="prefill_compute"))),
        Clamp(difference(_PROMPT_RATE, _CACHED_RATE), 0.0, float("inf")),
    )
)
# A mode has no series before its first pass: whoever has passed only in graphs has had no eager step.
_GRAPHED = _rate("sglang:cuda_graph_passes_total", mode="decode_cuda_graph")
_UNGRAPHED = _rate("sglang:cuda_graph_passes_total", mode="decode_none")
_EAGER = share(ratio(FirstOf((_UNGRAPHED, Scale(_GRAPHED, 0.0))), added(_UNGRAPHED, _GRAPHED)))
_STAGE = select("sglang:per_stage_req_latency_seconds", stage="~prefill_forward|chunked_prefill")


def _seen(expr: Expr, since: str, note: str = "") -> Definition:
    return Definition(expr, since, note=note)


def _read(expr: Expr, since: str, note: str = "") -> Definition:
    """Named in the sources, in no recorded page."""
    return Definition(expr, since, verified=False, note=note)


def _latency() -> dict[str, Definition | Absent]:
    return {
        "ttft_seconds_mean": _seen(mean(_TTFT, ENGINE_BY), "0.4.6"),
        "ttft_seconds_p50": _seen(quantile(0.5, _TTFT, ENGINE_BY), "0.4.6", "no bound below 0.1 s"),
        "ttft_seconds_p95": _seen(quantile(0.95, _TTFT, ENGINE_BY), "0.4.6", "no bound below 0.1 s"),
        "inter_token_seconds_mean": _read(mean(_BETWEEN, ENGINE_BY), "0.4.6"),
        "inter_token_seconds_p99": _read(quantile(0.99, _BETWEEN, ENGINE_BY), "0.4.6"),
        "e2e_seconds_mean": _read(mean(_E2E, ENGINE_BY), "0.4.6"),
        "e2e_seconds_p95": _read(quantile(0.95, _E2E, ENGINE_BY), "0.4.6"),
        "queue_seconds_mean": _read(mean(select("sglang:queue_time_seconds"), ENGINE_BY), "0.5.3"),
        "prefill_seconds_mean": _read(
            mean(_STAGE, ENGINE_BY), "0.5.3", "which stages are observed by default is not known"
        ),
        "decode_seconds_mean": Absent("SGLang times no decode phase"),
    }


def _traffic() -> dict[str, Definition | Absent]:
    lengths = "sglang:generation_tokens_histogram"
    return {
        "first_tokens_per_second": _seen(_rate("sglang:time_to_first_token_seconds_count"), "0.4.6"),
        "finished_requests_per_second": _read(_rate("sglang:num_requests_total"), "0.4.6"),
        "aborted_requests_per_second": _read(_rate("sglang:num_aborted_requests_total"), "0.4.10"),
        "http_requests_per_second": Absent("the labels of sglang:http_requests_total are not recorded"),
        "http_errors_per_second": _read(_rate("sglang:http_responses_total", status_code="~5.."), "0.5.9"),
        "prompt_tokens_per_second": _seen(_PROMPT_RATE, "0.4.6"),
        "computed_prompt_tokens_per_second": _read(_COMPUTED, "0.5.9"),
        "generation_tokens_per_second": _seen(_rate("sglang:generation_tokens_total"), "0.4.6"),
        "prompt_tokens_per_request_mean": _read(mean(_PROMPT, ENGINE_BY), "0.4.10"),
        "prompt_tokens_per_request_p50": _read(quantile(0.5, _PROMPT, ENGINE_BY), "0.4.10"),
        "prompt_tokens_per_request_p99": _read(quantile(0.99, _PROMPT, ENGINE_BY), "0.4.10"),
        "computed_tokens_per_request_mean": _read(mean(_COMPUTED_PROMPT, ENGINE_BY), "0.5.12"),
        "output_tokens_per_request_mean": _read(mean(select(lengths), ENGINE_BY), "0.4.10"),
        "step_tokens_mean": Absent("tokens per step stand only in SGLang's log (#new-token)"),
        "rejected_requests_per_second": Absent("SGLang counts no refusals at admission"),
    }


def _state() -> dict[str, Definition | Absent]:
    retracted = Rate(select("sglang:num_retracted_requests_total"))
    moved = select("sglang:kv_transfer_latency_ms")
    failed = ("num_transfer_failed_reqs_total", "num_bootstrap_failed_reqs_total")
    deferred = ("num_decode_prealloc_queue_reqs", "num_decode_transfer_queue_reqs")
    return {
        "running_requests": _seen(_over_ranks(Gauge(_RUNNING, "avg")), "0.4.6"),
        "running_requests_max": _seen(_over_ranks(Gauge(_RUNNING, "max")), "0.4.6"),
        "waiting_requests": _seen(_over_ranks(Gauge(_QUEUED, "avg")), "0.4.6"),
        "waiting_deferred_requests": _read(
            added(*(_over_ranks(Gauge(_own(name), "avg")) for name in deferred)), "0.4.10"
        ),
        "kv_cache_usage_ratio": _seen(
            at(Gauge(select("sglang:token_usage"), "max"), ENGINE_BY), "0.4.6", "evictable tokens not counted"
        ),
        "kv_capacity_tokens": _seen(
            _over_ranks(Gauge(select("sglang:max_total_num_tokens"))), "0.5.6", "summed over dp ranks"
        ),
        "preemptions_per_second": _seen(
            _over_ranks(retracted), "0.5.9", "no series before the first retraction: absence is not zero"
        ),
        "prefix_cache_hit_ratio": _seen(
            _HIT_RATIO, "0.4.6", "the gauge, a last resort, is of the last prefill report"
        ),
        "prefix_cache_query_tokens_per_second": _seen(
            _PROMPT_RATE, "0.4.6", "the radix cache is asked for every prompt token"
        ),
        "spec_decode_acceptance_ratio": _read(
            Aggregate("avg", Gauge(select("sglang:spec_accept_rate"), "avg"), ENGINE_BY), "0.5.6"
        ),
        "spec_decode_accepted_length_tokens": _read(
            Aggregate("avg", Gauge(select("sglang:spec_accept_length"), "avg"), ENGINE_BY), "0.4.6"
        ),
        "grammar_queue_requests": _read(
            _over_ranks(Gauge(select("sglang:num_grammar_queue_reqs"), "avg")), "0.4.10"
        ),
        "eager_decode_ratio": _read(_EAGER, "0.5.9"),
        "adapter_slots_used_ratio": _read(
            at(Gauge(select("sglang:lora_pool_utilization"), "max"), ENGINE_BY), "0.5.9"
        ),
        "kv_transfers_per_second": _read(_rate("sglang:kv_transfer_latency_ms_count"), "0.5.12"),
        "kv_transfer_seconds_mean": _read(Scale(mean(moved, ENGINE_BY), 1e-3), "0.5.12"),
        "kv_transfer_retries_per_second": _read(
            _over_ranks(Rate(_own("num_prefill_retries_total"))), "0.5.12"
        ),
        "kv_lookup_misses_per_second": Absent("SGLang counts no failed look-ups of its storage"),
        "kv_transfer_failures_per_second": _read(
            added(*(_over_ranks(Rate(_own(name))) for name in failed)), "0.4.10"
        ),
    }


def _own(name: str) -> Select:
    return select(f"sglang:{name}")


def _process() -> dict[str, Definition | Absent]:
    note = "absent in multiprocess mode"
    cpu = total(Rate(select("process_cpu_seconds_total")), ENGINE_BY)
    resident = total(Gauge(select("process_resident_memory_bytes")), ENGINE_BY)
    started = at(Gauge(select("process_start_time_seconds")), ENGINE_BY)
    return {
        "engine_cpu_ratio": _seen(_here(cpu), "0.4.6", note),
        "engine_resident_memory_bytes": _seen(_here(resident), "0.4.6", note),
        "engine_start_time_seconds": _seen(_here(started), "0.4.6", note),
    }


SGLANG = Engine(
    name="sglang",
    title="SGLang",
    probe=_RUNNING,
    signals={**_latency(), **_traffic(), **_state(), **_process()},
)
