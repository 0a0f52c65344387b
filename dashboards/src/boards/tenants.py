"""Tenants and fairness: who takes what, who pays for it, what is made for nobody."""

from __future__ import annotations

from dashboards.src import shared
from dashboards.src.limits import line
from dashboards.src.model import Board, Panel, Query, Row
from dashboards.src.queries import EXPORTER, SESSIONS, of, raw
from diag.assets.rules import thresholds as t

__all__ = ["TENANTS"]


def _rate(family: str, where: str = "") -> str:
    matchers = f"{EXPORTER},{where}" if where else EXPORTER
    return f"sum by (cluster, tenant) (rate({family}{{{matchers}}}[W]))"


def _tenant(expr: str) -> Query:
    return raw(expr, "{{tenant}}", "llmdiag")


_SHARE = Panel(
    "Share of tokens",
    "Prompt and answer tokens of the last minutes by tenant. One above the line while others wait is what quotas "
    "are for.",
    "percentunit",
    (_tenant(f"max by (cluster, tenant) (llmdiag_tenant_token_share_ratio{{{EXPORTER}}})"),),
    width=12,
    maximum=1.0,
    runbooks=("tenant_dominance",),
    limits=(line("LLMTenantDominance", t.TENANT_SHARE),),
)
_NOW = Panel(
    "Share of tokens now",
    "The same, as it stands.",
    "percentunit",
    (_tenant(f"sort_desc(max by (tenant) (llmdiag_tenant_token_share_ratio{{{EXPORTER}}}))"),),
    kind="bargauge",
    width=6,
    maximum=1.0,
    runbooks=("tenant_dominance",),
    limits=(line("LLMTenantDominance", t.TENANT_SHARE),),
)
_ACTIVE = Panel(
    "Active tenants",
    "With tokens in the last minutes. Alone, a tenant takes nothing from anybody: the alert asks for two.",
    "short",
    (raw(f"max by (cluster) (llmdiag_active_tenants{{{EXPORTER}}})", "tenants", "llmdiag"),),
    kind="stat",
    width=6,
    runbooks=("tenant_dominance",),
)
_TOKENS = Panel(
    "Tokens by tenant",
    "A second, prompt and answer.",
    "count:tok/s",
    (_tenant(_rate("llmdiag_tenant_tokens_total")),),
    stacked=True,
    runbooks=("tenant_dominance", "load_burst"),
)
_REQUESTS = Panel(
    "Requests by tenant",
    "A second. A share that grew with no more requests is longer requests.",
    "reqps",
    (_tenant(_rate("llmdiag_tenant_requests_total")),),
    stacked=True,
    runbooks=("tenant_dominance", "load_burst"),
)
_IN_FLIGHT = Panel(
    "In flight by tenant",
    "Mean number of requests in flight, as the rate of their durations.",
    "short",
    (_tenant(_rate("llmdiag_tenant_request_seconds_total")),),
    stacked=True,
    runbooks=("tenant_dominance", "sequence_limit"),
)
_DURATION = Panel(
    "Duration by tenant",
    "Mean of finished requests. Tenants whose own work did not change and who take longer are those who pay.",
    "s",
    (_tenant(f"{_rate('llmdiag_tenant_request_seconds_total')} / {_rate('llmdiag_tenant_requests_total')}"),),
    width=12,
    runbooks=("tenant_dominance", "head_of_line_blocking"),
)
_ABORTED = Panel(
    "Requests that end badly",
    "Share of requests whose client left, and share that failed, as the session feeds saw them.",
    "percentunit",
    (*of("aborted_ratio", "left"), *of("error_ratio", "failed")),
    maximum=1.0,
    runbooks=("aborted_requests", "abandoned_requests", "failing_requests"),
    limits=(line("LLMAbortWaste", t.ABORTED_SHARE),),
)
_WASTE = Panel(
    "Tokens of aborted requests",
    "A second, prompt and answer: work that nobody read, and what was made after the client had left.",
    "count:tok/s",
    (
        raw(f"sum by (cluster, model) (rate(llmdiag_aborted_tokens_total{{{SESSIONS}}}[W]))", "{{model}}", "llmdiag"),
        raw(
            f"sum by (cluster, model) (rate(llmdiag_tokens_after_abort_total{{{SESSIONS}}}[W]))",
            "{{model}} after leaving",
            "llmdiag",
            "no recorded or simulated feed tells of tokens after an abort; the proxy does",
        ),
    ),
    runbooks=("abandoned_requests", "aborted_requests"),
)  # fmt: skip
_ERRORS = Panel(
    "Errors by engine",
    "HTTP 5xx answers a second.",
    "reqps",
    of("http_errors_per_second", absent=shared.NO_SGLANG_ERRORS),
    runbooks=("failing_requests", "proxy_limit"),
    limits=(line("LLMRequestErrorsHigh", t.ERRORS_FLOOR),),
    drill="engine",
)

TENANTS = Board(
    "tenants",
    "llm-diag / Tenants and fairness",
    "Who takes what, who waits for it, how evenly replicas are used, what is made for nobody. Tenants need "
    "`diag-exporter sessions`.",
    (
        Row("Shares", ("tenant_dominance",), (_SHARE, _NOW, _ACTIVE, _TOKENS, _REQUESTS, _IN_FLIGHT)),
        Row("Who pays", ("tenant_dominance", "head_of_line_blocking"), (_DURATION, shared.ttft(12))),
        Row(
            "Replicas",
            ("routing_hotspot", "prefix_cache_scattered"),
            (shared.running(), shared.waiting(), shared.hit_ratio()),
        ),
        Row("For nobody", ("abandoned_requests", "proxy_limit"), (_ABORTED, _WASTE, _ERRORS)),
    ),
)
