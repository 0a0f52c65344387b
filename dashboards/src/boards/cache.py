"""KV and prefix cache: is the pool full, for whom, and is what was computed found again."""

from __future__ import annotations

from dashboards.src import shared
from dashboards.src.limits import line
from dashboards.src.model import Board, Panel, Query, Row
from dashboards.src.queries import PROXIED, WINDOW, expression, of, raw
from diag.assets.rules import thresholds as t
from diag.engines import engine

__all__ = ["CACHE"]


def _share(over: str, under: str) -> tuple[Query, ...]:
    return tuple(
        Query(
            f"({expression(over, engine(name))}) / (({expression(under, engine(name))}) > 0)",
            "{{instance}}",
            name,
        )
        for name in ("vllm", "sglang")
    )


_SHARE = Panel(
    "Preempted, of finished",
    "Preemptions for each finished request. Above the line more than one in ten is computed twice.",
    "percentunit",
    _share("preemptions_per_second", "finished_requests_per_second"),
    runbooks=("kv_cache_exhaustion",),
    limits=(line("LLMPreemptionShareHigh", t.PREEMPTED_SHARE),),
    drill="cache",
)
_CAPACITY = Panel(
    "Size of the pool",
    "Tokens that fit, as the engine or diag-exporter tells. A step down at a restart is a changed setting, a "
    "second engine on the card, or less memory.",
    "short",
    (
        raw(f"max by (cluster, engine) (llmdiag_engine_kv_capacity_tokens{{{PROXIED}}})", "{{engine}}", "llmdiag"),
        *of("kv_capacity_tokens"),
    ),
    runbooks=("kv_cache_exhaustion", "config_change", "oversized_request"),
    alerts=("LLMEngineConfigChanged",),
    drill="cache",
)  # fmt: skip
_IDLE = Panel(
    "Held while nothing runs",
    "Use of the pool at moments when no request runs and none waits. An idle engine holds nothing: a floor that "
    "only rises is blocks that never come back.",
    "percentunit",
    tuple(
        Query(
            f"({expression('kv_cache_usage_ratio', engine(name))}) "
            f"and on (cluster, job, instance) (({expression('running_requests_max', engine(name))}) == 0)",
            "{{instance}}",
            name,
            absent=absent,
        )
        for name, absent in (("vllm", ""), ("sglang", "the simulated SGLang service is never idle"))
    ),
    maximum=1.0,
    runbooks=("kv_block_leak",),
    limits=(line("LLMKVBlockLeak", t.KV_HELD),),
    drill="cache",
)
_FOR_CAPACITY = Panel(
    "Waiting for capacity",
    "Requests that wait for KV blocks, slots or budget, as vLLM counts them since 0.20.",
    "short",
    of("waiting_for_capacity_requests"),
    runbooks=("kv_cache_exhaustion", "oversized_request"),
    alerts=("LLMKVCacheSaturated", "LLMQueueStandstill"),
    drill="engine",
)
_ASKED = Panel(
    "Tokens asked of the prefix cache",
    "Zero under load: caching is off, or was switched off by a restart.",
    "count:tok/s",
    of("prefix_cache_query_tokens_per_second"),
    runbooks=("prefix_cache_off",),
    alerts=("LLMPrefixCachingDisabled",),
    drill="cache",
)
_BEFORE = Panel(
    "Hits now, less an hour before",
    "How far the hit ratio moved. All replicas at once: clients changed their prompts' head. In turn or apart: "
    "routing, restarts or a full pool.",
    "percentunit",
    tuple(
        Query(f"({text}) - ({text.replace(f'[{WINDOW}]', f'[{WINDOW}] offset 1h')})", "{{instance}}", name, "", absent)
        for name, absent in (("vllm", ""), ("sglang", "the SGLang incident lasts less than an hour"))
        for text in (expression("prefix_cache_hit_ratio", engine(name)),)
    ),
    runbooks=("prefix_cache_broken", "prefix_cache_scattered"),
    alerts=("LLMPrefixCacheHitCollapse",),
    drill="cache",
    minimum=None,
)  # fmt: skip
_COMPUTED = Panel(
    "Computed per request",
    "Prompt tokens computed for a finished request, mean: the work that caching did not save.",
    "short",
    of("computed_tokens_per_request_mean"),
    runbooks=("prefix_cache_off", "prefix_cache_broken"),
    drill="sessions",
)
_PREFILL = Panel(
    "Time in prefill",
    "From first scheduling to first token, mean of finished requests. Recomputation after a preemption is in it "
    "and in no token counter.",
    "s",
    of("prefill_seconds_mean"),
    runbooks=("kv_cache_exhaustion", "prefix_cache_off"),
    drill="engine",
)

CACHE = Board(
    "cache",
    "llm-diag / KV and prefix cache",
    "Whether the pool is full, for whom, and whether what was computed before is found again.",
    (
        Row(
            "The pool",
            ("kv_cache_exhaustion", "kv_block_leak", "oversized_request"),
            (shared.kv_usage(), shared.preemptions(), _SHARE, _FOR_CAPACITY, _CAPACITY, _IDLE),
        ),
        Row(
            "The prefix cache",
            ("prefix_cache_off", "prefix_cache_broken", "prefix_cache_scattered"),
            (shared.hit_ratio(), _BEFORE, _ASKED),
        ),
        Row(
            "What it costs",
            ("prefix_cache_off", "context_growth"),
            (shared.computed_tokens(), _COMPUTED, _PREFILL),
        ),
    ),
)
