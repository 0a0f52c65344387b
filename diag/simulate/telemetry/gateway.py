"""What stands beside the engines: the gateway's own metrics, and the store that says who holds which KV."""

from __future__ import annotations

import numpy as np

from diag.model import Floats
from diag.simulate.observed import Run
from diag.simulate.telemetry.page import Page, forever

__all__ = ["gateway_page", "store_page"]

_STORE_BYTES = 512e9
_KEY_TOKENS = 256.0


def gateway_page(run: Run) -> Page:
    """nginx-prometheus-exporter, ``job="nginx"``: connections of clients, waiting ones among them."""
    seconds = np.full(run.times.shape, 0.003)
    page = Page("nginx", "gateway-0:9113", {}, run.times, forever(21.0), seconds)
    reached = np.sort([call.reached for call in run.calls if np.isfinite(call.reached)])
    requests = np.searchsorted(reached, run.times, side="right").astype(np.float64)
    active = run.gateway_in_flight + run.gateway_waiting
    page.gauge("nginx_up", 1.0)
    page.gauge("nginx_connections_active", active + 1.0)
    page.gauge("nginx_connections_writing", active + 1.0)
    page.gauge("nginx_connections_reading", 0.0)
    page.gauge("nginx_connections_waiting", 0.0)
    page.counter("nginx_connections_accepted", requests)
    page.counter("nginx_connections_handled", requests)
    page.counter("nginx_http_requests_total", requests)
    return page


def store_page(run: Run) -> Page:
    """Mooncake's master, ``job="mooncake-master"``; its page has no labels, and odd names."""
    seconds = np.full(run.times.shape, 0.004)
    page = Page("mooncake-master", "mooncake-master-0:9003", {}, run.times, forever(6.0), seconds)
    held = np.zeros(run.times.shape)
    moved, missed = held.copy(), held.copy()
    for replica, engine in zip(run.plan.replicas, run.engines, strict=True):
        tokens = (
            engine.gauges["kv_used_ratio"] * replica.settings.kv_blocks * replica.settings.block_size_tokens
        )
        held = held + tokens * replica.machine.kv_bytes_per_token
        moved = moved + engine.counters["transfers"]
        missed = missed + engine.counters["lookup_misses"]
    bytes_per_key = _KEY_TOKENS * max(one.machine.kv_bytes_per_token for one in run.plan.replicas)
    page.gauge("master_active_clients", float(len(run.plan.replicas)))
    page.gauge("master_key_count", held / bytes_per_key)
    page.gauge("master_allocated_bytes", np.minimum(held, _STORE_BYTES))
    page.gauge("master_total_capacity_bytes", _STORE_BYTES)
    nothing: Floats = np.zeros(run.times.shape)
    page.counter("master_get_replica_list_requests_total", moved + missed)
    page.counter("master_get_replica_list_failures_total", nothing)
    page.counter("master_put_start_alloc_failures_total", nothing)
    page.counter("total_get_nums_", moved + missed)
    page.counter("valid_get_nums_", moved)
    page.counter("mem_cache_hit_nums_", moved)
    return page
