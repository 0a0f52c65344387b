"""Sessions and context length: who is active, how long their histories are, what could be reused."""

from __future__ import annotations

from dashboards.src import shared
from dashboards.src.limits import line
from dashboards.src.model import Board, Panel, Query, Row
from dashboards.src.queries import SESSIONS as BY_MODEL
from dashboards.src.queries import raw
from diag.assets.rules import thresholds as t

__all__ = ["SESSIONS"]

_QUANTILES = ((0.99, "p99"), (0.95, "p95"), (0.5, "p50"))


def _now(family: str) -> tuple[Query, ...]:
    """Percentiles over the active sessions as of now: these histograms are no counters, so no rate."""
    return tuple(
        raw(
            f"histogram_quantile({q}, sum by (cluster, model, le) ({family}_bucket{{{BY_MODEL}}}))",
            f"{{{{model}}}} {name}",
            "llmdiag",
        )
        for q, name in _QUANTILES
    )


def _by_length(family: str, absent: str = "") -> Query:
    parts = [
        f"sum by (cluster, model, prompt_tokens) (rate({family}_{part}{{{BY_MODEL}}}[W]))"
        for part in ("sum", "count")
    ]
    return raw(f"{parts[0]} / {parts[1]}", "{{prompt_tokens}}", "llmdiag", absent)  # fmt: skip


def _gauge(name: str, legend: str) -> Query:
    return raw(f"max by (cluster, model) ({name}{{{BY_MODEL}}})", legend, "llmdiag")


_ACTIVE = Panel(
    "Active sessions",
    "Sessions with a request in the last quarter of an hour.",
    "short",
    (_gauge("llmdiag_active_sessions", "{{model}}"),),
    runbooks=("load_burst", "context_growth"),
)
_CONTEXT = Panel(
    "Context of active sessions",
    "Prompt and answer at each session's last request: percentiles over sessions, not over requests, so that a few "
    "old chats do not hide behind many fresh ones.",
    "short",
    _now("llmdiag_active_session_context_tokens"),
    runbooks=("context_growth",),
)
_NEAR_LIMIT = Panel(
    "Context, of the model's longest",
    "Near 1 the next turns are cut or refused.",
    "percentunit",
    _now("llmdiag_active_session_context_ratio"),
    maximum=1.0,
    runbooks=("context_growth",),
    limits=(line("LLMSessionContextNearLimit", t.CONTEXT_NEAR_LIMIT),),
)
_AGE = Panel(
    "Age of active sessions",
    "Time since a session's first request.",
    "s",
    _now("llmdiag_active_session_age_seconds"),
    runbooks=("context_growth",),
)
_TURNS = Panel(
    "Turns of active sessions",
    "Requests seen of each. Context that climbs faster than turns: each turn brings more.",
    "short",
    _now("llmdiag_active_session_turns"),
    runbooks=("context_growth",),
)
_GROWTH = Panel(
    "Growth per turn",
    "Prompt tokens that a session's request has more than the one before it, median and 95th percentile.",
    "short",
    tuple(
        raw(
            f"histogram_quantile({q}, sum by (cluster, model, le) "
            f"(rate(llmdiag_session_growth_tokens_bucket{{{BY_MODEL}}}[W])))",
            f"{{{{model}}}} {name}",
            "llmdiag",
        )
        for q, name in _QUANTILES[1:]
    ),
    runbooks=("context_growth",),
)
_TTFT = Panel(
    "First token by prompt length",
    "Mean. Old sessions are the long bins. All bins up together: not the length, but queue, card or host. Long ones "
    "alone: their own prefill.",
    "s",
    (_by_length("llmdiag_ttft_seconds"),),
    width=12,
    runbooks=("context_growth", "head_of_line_blocking", "prefix_cache_off"),
    limits=(line("LLMTTFTBudgetBurnFast", t.TTFT_BOUND),),
)
_QUEUE = Panel(
    "Queue by prompt length",
    "Mean. First come, first served: short prompts that wait as long as long ones stand behind them.",
    "s",
    (
        _by_length(
            "llmdiag_queue_seconds",
            "the incidents' request records tell no queue time; an engine's traces do",
        ),
    ),
    width=12,
    runbooks=("head_of_line_blocking", "load_burst"),
)
_REUSE = Panel(
    "Sent before, and found in the cache",
    "Share of prompt tokens that the session had sent before, and share that was cached.",
    "percentunit",
    (
        _gauge("llmdiag_prompt_repeat_ratio", "{{model}} sent before"),
        _gauge("llmdiag_prompt_cached_ratio", "{{model}} cached"),
    ),
    dashed="cached",
    maximum=1.0,
    runbooks=("prefix_cache_off", "prefix_cache_broken"),
)
_HEADROOM = Panel(
    "Reuse headroom",
    "Share of prompt tokens sent before and computed all the same: what caching, a stable prompt head or sticky "
    "routing would save.",
    "percentunit",
    (_gauge("llmdiag_prompt_reuse_headroom_ratio", "{{model}}"),),
    maximum=1.0,
    runbooks=("prefix_cache_off", "prefix_cache_broken", "prefix_cache_scattered"),
    limits=(line("LLMPrefixReuseMissed", t.REUSE_MISSED),),
)
_ENDS = Panel(
    "How requests end",
    "A second, by status, as gateway, proxy or traces told.",
    "reqps",
    (raw(f"sum by (cluster, status) (rate(llmdiag_requests_total{{{BY_MODEL}}}[W]))", "{{status}}", "llmdiag"),),
    runbooks=("aborted_requests", "failing_requests"),
    drill="tenants",
    variable="",
)  # fmt: skip
_SHRINKS = Panel(
    "Prompts shorter than the turn before",
    "A second: histories that were cut, or two conversations under one name.",
    "reqps",
    (raw(f"sum by (cluster, model) (rate(llmdiag_session_shrinks_total{{{BY_MODEL}}}[W]))", "{{model}}", "llmdiag"),),
    runbooks=("context_growth",),
)  # fmt: skip
_ENGINE_MEAN = (
    "sum by (cluster) (rate(vllm:time_to_first_token_seconds_sum{W}[W]) or rate(sglang:time_to_first_token_seconds_sum{W}[W]))"
    " / sum by (cluster) (rate(vllm:time_to_first_token_seconds_count{W}[W]) or "
    "rate(sglang:time_to_first_token_seconds_count{W}[W]))"
).replace("{W}", '{cluster=~"$cluster",model_name=~"$model"}')  # fmt: skip
_CLIENT_MEAN = (
    f"sum by (cluster) (rate(llmdiag_ttft_seconds_sum{{{BY_MODEL}}}[W])) "
    f"/ sum by (cluster) (rate(llmdiag_ttft_seconds_count{{{BY_MODEL}}}[W]))"
)
GAP = Panel(
    "First token outside the engine",
    "Mean as clients or the gateway saw it, less the engine's own: network, balancer, gateway, or a client's own "
    "queue. Clients tell at a request's end and the engine at its first token, so the line wavers where answers "
    "are long: look for a level.",
    "s",
    (raw(f"({_CLIENT_MEAN}) - ({_ENGINE_MEAN})", "outside the engine", "llmdiag"),),
    runbooks=("network_latency", "proxy_limit", "client_limit"),
    limits=(line("LLMClientGapHigh", t.CLIENT_GAP),),
    minimum=None,
)

SESSIONS = Board(
    "sessions",
    "llm-diag / Sessions and context length",
    "Who is active and how long their histories are, old sessions against fresh ones, and what could be reused. "
    "Needs `diag-exporter sessions`.",
    (
        Row(
            "Context",
            ("context_growth",),
            (_CONTEXT, _NEAR_LIMIT, _ACTIVE, _AGE, _TURNS, _GROWTH),
        ),
        Row(
            "Old sessions against fresh ones",
            ("context_growth", "head_of_line_blocking"),
            (_TTFT, _QUEUE),
        ),
        Row(
            "Reuse",
            ("prefix_cache_off", "prefix_cache_broken", "prefix_cache_scattered"),
            (_REUSE, _HEADROOM, shared.hit_ratio()),
        ),
        Row(
            "Requests and what is outside the engine",
            ("network_latency", "proxy_limit", "client_limit"),
            (GAP, _ENDS, _SHRINKS, shared.prompt_lengths(12), shared.e2e(12)),
        ),
    ),
)
