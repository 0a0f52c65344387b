"""SGLang's metrics page as of 0.5.23: the scheduler's series, the request handler's, and their bounds.

Labelled counters come on the page with their first increment. Bounds and names were read in the
sources of 0.5.x; its buckets are interpolated from ours, since they are finer or coarser.
"""

from __future__ import annotations

import numpy as np

from diag.model import Floats
from diag.simulate.observed import HISTOGRAMS, Engine, Run
from diag.simulate.plan import Replica
from diag.simulate.telemetry.engines import engine_page, process_rows, setting
from diag.simulate.telemetry.page import Page

__all__ = ["BOUNDS", "rebinned", "sglang_page"]

_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
_BETWEEN = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6,
    0.8, 1.0, 2.0, 4.0, 6.0, 8.0,
)  # fmt: skip
_QUEUE = (
    0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0,
    100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 1200.0, 1400.0, 1600.0, 1800.0,
    2000.0, 2500.0, 3000.0,
)  # fmt: skip
_TOKENS = (
    100.0, 300.0, 500.0, 700.0, 1e3, 1.5e3, 2e3, 3e3, 4e3, 5e3, 6e3, 7e3, 8e3, 9e3, 1e4, 1.2e4, 1.5e4, 2e4,
    2.2e4, 2.5e4, 3e4, 3.5e4, 4e4, 6.6e4, 9.9e4, 1.32e5, 3e5, 6e5, 9e5, 1.1e6,
)  # fmt: skip
_STAGE = tuple(0.001 * 1.62**power for power in range(30))

BOUNDS = {
    "ttft_seconds": ("sglang:time_to_first_token_seconds", _TTFT),
    "inter_token_seconds": ("sglang:inter_token_latency_seconds", _BETWEEN),
    "e2e_seconds": ("sglang:e2e_request_latency_seconds", (*_TTFT, 600.0, 1200.0, 1800.0, 2400.0)),
    "prompt_tokens": ("sglang:prompt_tokens_histogram", _TOKENS),
    "computed_tokens": ("sglang:uncached_prompt_tokens_histogram", _TOKENS),
    "output_tokens": ("sglang:generation_tokens_histogram", _TOKENS),
    "queue_seconds": ("sglang:queue_time_seconds", _QUEUE),
    "prefill_seconds": ("sglang:per_stage_req_latency_seconds", _STAGE),
}
"""Our histograms by SGLang's names, with its upper bounds."""

_STREAMED = ("ttft_seconds", "e2e_seconds")
_RANKED = ("queue_seconds", "prefill_seconds")


def sglang_page(run: Run, engine: Engine, replica: Replica) -> Page:
    """The page of one replica, ``job="sglang"``."""
    page = engine_page(run, replica, "sglang", "sglang:")
    handler = {"engine_type": "unified", "model_name": replica.machine.name}
    rank = {**handler, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
    _scheduler(page, engine, rank)
    _counts(page, engine, handler)
    _graphs(page, engine, replica, rank)
    for ours, (name, bounds) in BOUNDS.items():
        counts = rebinned(HISTOGRAMS[ours], engine.histograms[ours], bounds)
        labels = dict(rank if ours in _RANKED else handler)
        if ours in _STREAMED:
            labels["is_streaming"] = "true"
        if ours == "prefill_seconds":
            labels["stage"] = "prefill_forward"
        page.histogram(name, bounds, counts, engine.sums[ours], **labels)
    process_rows(page, engine, run.plan.start)
    return page


def _scheduler(page: Page, engine: Engine, rank: dict[str, str]) -> None:
    gauges, held = engine.gauges, engine.counters
    capacity = setting(page, lambda settings: float(settings.kv_blocks * settings.block_size_tokens))
    used = gauges["kv_used_ratio"]
    page.gauge("sglang:num_running_reqs", gauges["running"], **rank)
    page.gauge("sglang:num_queue_reqs", gauges["waiting_capacity"], **rank)
    page.gauge("sglang:num_grammar_queue_reqs", gauges["waiting_deferred"], **rank)
    page.gauge("sglang:token_usage", used, 4, **rank)
    page.gauge("sglang:num_used_tokens", used * capacity, **rank)
    page.gauge("sglang:max_total_num_tokens", capacity, **rank)
    page.gauge("sglang:page_size", setting(page, lambda one: float(one.block_size_tokens)), **rank)
    page.gauge("sglang:context_len", setting(page, lambda one: float(one.max_model_len_tokens)), **rank)
    page.gauge("sglang:gen_throughput", _rate(page, held["generation_tokens"]), 3, **rank)
    share = _rate(page, held["cached_tokens"]) / np.maximum(_rate(page, held["prompt_tokens"]), 1e-9)
    page.gauge("sglang:cache_hit_rate", np.minimum(share, 1.0), 4, **rank)
    if any(life.settings.speculative_tokens for life in page.lives):
        accepted = _rate(page, held["accepted_tokens"]) / np.maximum(_rate(page, held["draft_tokens"]), 1e-9)
        page.gauge("sglang:spec_accept_rate", np.minimum(accepted, 1.0), 4, **rank)
    page.late("sglang:num_retracted_requests_total", held["preemptions"], **rank)
    page.late("sglang:num_transfer_failed_reqs_total", held["transfer_failures"], **rank)
    modes = {
        "prefill_compute": "computed_tokens",
        "prefill_cache": "cached_tokens",
        "decode": "generation_tokens",
    }
    for mode, name in modes.items():
        page.late("sglang:realtime_tokens_total", held[name], mode=mode, **rank)


def _counts(page: Page, engine: Engine, handler: dict[str, str]) -> None:
    held = engine.counters
    streamed = {**handler, "is_streaming": "true"}
    ended = held["finished_stop"] + held["finished_length"] + held["finished_error"]
    page.late("sglang:prompt_tokens_total", held["prompt_tokens"], **streamed)
    page.late("sglang:generation_tokens_total", held["generation_tokens"], **streamed)
    page.late("sglang:cached_tokens_total", held["cached_tokens"], cache_source="device", **handler)
    page.late("sglang:num_requests_total", ended + held["finished_abort"], **streamed)
    page.late("sglang:num_aborted_requests_total", held["finished_abort"], **handler)
    where = {"endpoint": "/v1/chat/completions", "method": "POST"}
    for status, name in (("200", "http_2xx"), ("400", "http_4xx"), ("500", "http_5xx")):
        page.late("sglang:http_responses_total", held[name], status_code=status, **where)


def _graphs(page: Page, engine: Engine, replica: Replica, rank: dict[str, str]) -> None:
    """Decode passes with and without a CUDA graph."""
    fresh = np.diff(engine.counters["steps"], prepend=engine.counters["steps"][:1])
    eager = (fresh * np.clip(replica.eager.over(page.times), 0.0, 1.0)).cumsum()
    graphed = np.maximum(engine.counters["steps"] - eager, 0.0)
    page.late("sglang:cuda_graph_passes_total", graphed, mode="decode_cuda_graph", **rank)
    page.late("sglang:cuda_graph_passes_total", eager, mode="decode_none", **rank)


def _rate(page: Page, counter: Floats) -> Floats:
    spans = np.maximum(np.diff(page.times, prepend=page.times[:1] - 1.0), 1e-9)
    rate: Floats = np.diff(counter, prepend=counter[:1]) / spans
    return rate


def rebinned(bounds: tuple[float, ...], counts: Floats, onto: tuple[float, ...]) -> Floats:
    """Counts per bucket of ``bounds`` as counts per bucket of ``onto``, shape (n, len(onto) + 1).

    Inside a bucket observations are taken to lie evenly on a log scale, in the first evenly; what lies beyond
    the last bound stays beyond every bound."""
    edges = np.array([0.0, *bounds])
    upto = np.concatenate([np.zeros((counts.shape[0], 1)), counts[:, :-1].cumsum(axis=1)], axis=1)
    wanted = np.clip(np.array(onto), edges[0], edges[-1])
    right = np.clip(np.searchsorted(edges, wanted, side="left"), 1, edges.size - 1)
    left, bound = edges[right - 1], edges[right]
    with np.errstate(divide="ignore", invalid="ignore"):
        curved = np.log(wanted / left) / np.log(bound / left)
    share = np.where(left > 0.0, curved, wanted / bound)
    below = upto[:, right - 1] + (upto[:, right] - upto[:, right - 1]) * share
    whole = np.concatenate([below, counts.sum(axis=1, keepdims=True)], axis=1)
    moved: Floats = np.diff(np.rint(whole), axis=1, prepend=0.0)
    return moved
