"""Scenarios of traffic, sessions and the engine."""

from __future__ import annotations

from diag.simulate.scenarios import (
    abandoned_requests,
    config_change,
    context_growth,
    cuda_graph_gap,
    engine_restart,
    engine_stall,
    grammar_stall,
    head_of_line_blocking,
    kv_block_leak,
    kv_cache_exhaustion,
    load_burst,
    long_outputs,
    oversized_request,
    port_conflict,
    prefill_interference,
    prefix_cache_broken,
    prefix_cache_off,
    prefix_cache_scattered,
    sequence_limit,
    spec_decode_collapse,
    tenant_dominance,
)
from diag.simulate.scenarios.draw import Scenario

__all__ = ["TRAFFIC"]

TRAFFIC: tuple[Scenario, ...] = (
    context_growth.SCENARIO,
    kv_cache_exhaustion.SCENARIO,
    prefix_cache_off.SCENARIO,
    prefix_cache_broken.SCENARIO,
    prefix_cache_scattered.SCENARIO,
    load_burst.SCENARIO,
    head_of_line_blocking.SCENARIO,
    prefill_interference.SCENARIO,
    tenant_dominance.SCENARIO,
    abandoned_requests.SCENARIO,
    long_outputs.SCENARIO,
    sequence_limit.SCENARIO,
    oversized_request.SCENARIO,
    engine_stall.SCENARIO,
    kv_block_leak.SCENARIO,
    cuda_graph_gap.SCENARIO,
    spec_decode_collapse.SCENARIO,
    grammar_stall.SCENARIO,
    engine_restart.SCENARIO,
    port_conflict.SCENARIO,
    config_change.SCENARIO,
)
"""In the order of the catalogue."""
