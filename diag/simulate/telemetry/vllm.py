"""vLLM's metrics page, V1 as of 0.32: names, labels and bounds as on the recorded pages.

Counters of what a client saw are not there: one that leaves is counted nowhere. Lengths and the phases
of a request are of finished requests. ``local_compute`` counts a prompt once, at its first token;
what is computed again after a preemption is in the steps alone.
"""

from __future__ import annotations

import numpy as np

from diag.model import Floats
from diag.simulate.observed import HISTOGRAMS, Engine, Run
from diag.simulate.plan import Replica, Settings
from diag.simulate.telemetry.engines import adapters, by_life, engine_page, process_rows, server
from diag.simulate.telemetry.page import Page

__all__ = ["FAMILIES", "vllm_page"]

FAMILIES = {
    "ttft_seconds": "vllm:time_to_first_token_seconds",
    "inter_token_seconds": "vllm:inter_token_latency_seconds",
    "e2e_seconds": "vllm:e2e_request_latency_seconds",
    "queue_seconds": "vllm:request_queue_time_seconds",
    "prefill_seconds": "vllm:request_prefill_time_seconds",
    "decode_seconds": "vllm:request_decode_time_seconds",
    "prompt_tokens": "vllm:request_prompt_tokens",
    "computed_tokens": "vllm:request_prefill_kv_computed_tokens",
    "output_tokens": "vllm:request_generation_tokens",
    "step_tokens": "vllm:iteration_tokens_total",
}
"""Our histograms by vLLM's names."""

_LENGTHS = ("prompt_tokens", "computed_tokens", "output_tokens")
_TRANSFER_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0)
_SOURCES = ("host", "p2p", "disk", "external_unspecified")
_CONFIG = {
    "_block_size_resolved": "True", "cache_dtype": "auto", "cache_hit_alignment_tokens": "None",
    "enable_mamba_shared_prefix_checkpoint": "False", "gpu_memory_utilization": "0.92",
    "hash_block_size": "None",
    "is_attention_free": "False", "kv_cache_dtype_skip_layers": "[]", "kv_cache_layout": "None",
    "kv_cache_memory_bytes": "None", "kv_offloading_backend": "native", "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False", "mamba_block_size": "None", "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none", "mamba_page_size_padded": "None", "mamba_ssm_cache_dtype": "auto",
    "num_cpu_blocks": "None", "prefix_cache_retention_interval": "0", "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None", "replayssm_buffer_len": "16", "skip_page_size_padded": "None",
    "sliding_window": "None", "swa_bounded_replay": "True", "use_kda_recoverssm": "False",
    "use_replayssm": "False", "user_specified_block_size": "False",
}  # fmt: skip


def vllm_page(run: Run, engine: Engine, replica: Replica) -> Page:
    """The page of one replica, ``job="vllm"``."""
    page = engine_page(run, replica, "vllm", "vllm:")
    labels = {"engine": "0", "model_name": replica.machine.name}
    _state(page, engine, labels)
    _tokens(page, engine, labels)
    _requests(page, engine, labels)
    for ours, name in FAMILIES.items():
        most = replica.settings.max_model_len_tokens if ours in _LENGTHS else np.inf
        bounds, counts = _cut(HISTOGRAMS[ours], engine.histograms[ours], most)
        page.histogram(name, bounds, counts, engine.sums[ours], **labels)
    _configuration(page)
    _extras(page, run, engine, replica, labels)
    process_rows(page, engine, run.plan.start)
    server(page, engine)
    return page


def _state(page: Page, engine: Engine, labels: dict[str, str]) -> None:
    gauges = engine.gauges
    page.gauge("vllm:num_requests_running", gauges["running"], **labels)
    page.gauge("vllm:num_requests_waiting", gauges["waiting"], **labels)
    for reason in ("capacity", "deferred"):
        waiting = gauges[f"waiting_{reason}"]
        page.gauge("vllm:num_requests_waiting_by_reason", waiting, reason=reason, **labels)
    page.gauge("vllm:kv_cache_usage_perc", gauges["kv_used_ratio"], 6, **labels)
    for state, on in (("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)):
        page.gauge("vllm:engine_sleep_state", on, sleep_state=state, **labels)
    page.counter("vllm:num_preemptions_total", engine.counters["preemptions"], **labels)


def _tokens(page: Page, engine: Engine, labels: dict[str, str]) -> None:
    held = engine.counters
    cached, external, prompt = held["cached_tokens"], held["external_tokens"], held["prompt_tokens"]
    computed: Floats = np.maximum.accumulate(np.maximum(prompt - cached - external, 0.0))
    page.counter("vllm:prompt_tokens_total", prompt, **labels)
    page.counter("vllm:generation_tokens_total", held["generation_tokens"], **labels)
    page.counter("vllm:prompt_tokens_cached_total", cached + external, **labels)
    for source, row in (
        ("local_compute", computed),
        ("local_cache_hit", cached),
        ("external_kv_transfer", external),
    ):
        page.counter("vllm:prompt_tokens_by_source_total", row, source=source, **labels)
    page.counter("vllm:prompt_tokens_cached_by_source_total", held["hits_tokens"], source="device", **labels)
    for source in _SOURCES:
        row = external if source == "p2p" else np.zeros_like(prompt)
        page.counter("vllm:prompt_tokens_cached_by_source_total", row, source=source, **labels)
    asked = np.maximum.accumulate(np.maximum(held["queries_tokens"] - held["hits_tokens"], 0.0))
    outside = asked if external.any() else np.zeros_like(asked)
    page.counter("vllm:prefix_cache_queries_total", held["queries_tokens"], **labels)
    page.counter("vllm:prefix_cache_hits_total", held["hits_tokens"], **labels)
    page.counter("vllm:external_prefix_cache_queries_total", outside, **labels)
    page.counter("vllm:external_prefix_cache_hits_total", external, **labels)


def _requests(page: Page, engine: Engine, labels: dict[str, str]) -> None:
    nothing = np.zeros(page.times.shape)
    for reason in ("stop", "length", "abort", "error", "repetition"):
        row = engine.counters.get(f"finished_{reason}", nothing)
        page.counter("vllm:request_success_total", row, finished_reason=reason, **labels)
    for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
        name = labels["model_name"]
        page.counter("vllm:admission_rejections_total", nothing, model_name=name, reason=reason)


def _cut(bounds: tuple[float, ...], counts: Floats, most: float) -> tuple[tuple[float, ...], Floats]:
    """Bounds up to ``most``: those of lengths end at the longest context."""
    kept = sum(1 for bound in bounds if bound <= most)
    if kept == len(bounds):
        return bounds, counts
    rest = counts[:, kept:].sum(axis=1, keepdims=True)
    return bounds[:kept], np.concatenate([counts[:, :kept], rest], axis=1)


def _configuration(page: Page) -> None:
    for life, seen in by_life(page):
        page.gauge("vllm:cache_config_info", seen, **_config(life.settings))


def _config(settings: Settings) -> dict[str, str]:
    tokens = settings.kv_blocks * settings.block_size_tokens
    size = str(settings.block_size_tokens)
    return {
        **_CONFIG,
        "engine": "0",
        "block_size": size,
        "effective_attention_block_size": size,
        "enable_prefix_caching": str(settings.prefix_caching),
        "kv_cache_max_concurrency": repr(tokens / settings.max_model_len_tokens),
        "kv_cache_size_tokens": str(tokens),
        "num_gpu_blocks": str(settings.kv_blocks),
        "num_gpu_blocks_override": "None",
    }


def _extras(page: Page, run: Run, engine: Engine, replica: Replica, labels: dict[str, str]) -> None:
    """What is on the page only if it is configured: speculation, adapters, a KV connector."""
    held = engine.counters
    drafts = max(life.settings.speculative_tokens for life in page.lives)
    if drafts:
        page.counter("vllm:spec_decode_num_drafts_total", held["draft_tokens"] / drafts, **labels)
        page.counter("vllm:spec_decode_num_draft_tokens_total", held["draft_tokens"], **labels)
        page.counter("vllm:spec_decode_num_accepted_tokens_total", held["accepted_tokens"], **labels)
    slots = max(life.settings.max_loras for life in page.lives)
    if slots:
        for running, waiting, last in adapters(run, replica):
            names = {
                "running_lora_adapters": running,
                "waiting_lora_adapters": waiting,
                "max_lora": str(slots),
            }
            page.gauge("vllm:lora_requests_info", run.plan.start + last, 3, **names)
    _connector(page, run, engine, replica, labels)


def _connector(page: Page, run: Run, engine: Engine, replica: Replica, labels: dict[str, str]) -> None:
    """NIXL moves the blocks, a Mooncake store says who holds them."""
    held, fabric = engine.counters, run.plan.fabric
    if fabric is None:
        return
    bytes_moved = held["external_tokens"] * replica.machine.kv_bytes_per_token
    seconds = held["transfers"] * fabric.setup_seconds + bytes_moved / fabric.bytes_per_second
    counts = _at_mean(_TRANSFER_BOUNDS, held["transfers"], seconds)
    page.histogram("vllm:nixl_xfer_time_seconds", _TRANSFER_BOUNDS, counts, seconds, **labels)
    page.counter("vllm:nixl_bytes_transferred_count", held["transfers"], **labels)
    page.counter("vllm:nixl_bytes_transferred_sum", bytes_moved, **labels)
    page.counter("vllm:nixl_num_failed_transfers_total", held["transfer_failures"], **labels)
    page.counter("vllm:nixl_num_failed_notifications_total", np.zeros(page.times.shape), **labels)
    page.counter("vllm:nixl_num_kv_expired_reqs_total", held["transfer_expired"], **labels)
    missed = held["lookup_misses"]
    for status, row in (("ok", held["transfers"]), ("error", missed)):
        where = {"operation": "get", "status": status, **labels}
        page.counter("vllm:mooncake_store_operation_total", row, **where)
    failed = {"operation": "get", "status": "error", **labels}
    page.counter("vllm:mooncake_store_operation_failed_keys_total", missed, **failed)


def _at_mean(bounds: tuple[float, ...], counts: Floats, sums: Floats) -> Floats:
    """Observations of which only number and sum are known, each taken to be its interval's mean."""
    fresh = np.diff(counts, prepend=counts[:1])
    mean = np.diff(sums, prepend=sums[:1]) / np.maximum(fresh, 1e-9)
    spread = np.zeros((counts.size, len(bounds) + 1))
    spread[np.arange(counts.size), np.searchsorted(np.array(bounds), mean)] = fresh
    upto: Floats = spread.cumsum(axis=0)
    return upto
