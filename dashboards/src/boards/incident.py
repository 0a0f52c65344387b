"""The incident overview: the symptom first, then everything that can cause it, top to bottom."""

from __future__ import annotations

from dataclasses import replace

from dashboards.src import shared
from dashboards.src.boards.machine import CPU_PRESSURE, FAULTS, MEMORY, PROCESSES, RETRANSMITS
from dashboards.src.boards.sessions import GAP
from dashboards.src.limits import line
from dashboards.src.model import Board, Panel, Row
from dashboards.src.queries import EXPORTER, PROXIED, SESSIONS, of, raw
from diag.assets.rules import thresholds as t

__all__ = ["INCIDENT"]

_FIRING = Panel(
    "Alerts that fire",
    "Of this product, by severity; their times stand as marks in every panel. None here and users complain: open "
    "the triage of this window.",
    "short",
    (
        raw(
            'count by (alertname, severity) (ALERTS{alertstate="firing",service="llm",alertname!="LLMWatchdog",'
            'cluster=~"$cluster"})',
            "{{alertname}} ({{severity}})",
            "process",
            "alerts are not evaluated over the stored incidents here; tests/rules replays them",
        ),
    ),
    kind="bargauge",
    width=6,
    runbooks=("watchdog", "blind_rules"),
    alerts=("LLMRuleInputMissing", "LLMExporterAbsent", "LLMWatchdog"),
)
_HEALTH = Panel(
    "Engines' health check",
    "As diag-exporter asks them. Healthy and no tokens is a stall: a health check does not run the model.",
    "none",
    (raw(f"min by (engine) (min_over_time(llmdiag_engine_up{{{PROXIED}}}[W]))", "{{engine}}", "llmdiag"),),
    kind="state-timeline",
    width=12,
    runbooks=("target_down", "engine_stall"),
    alerts=("LLMEngineUnhealthy",),
    states=shared.UP_STATES,
    maximum=1.0,
)
_TOKENS = Panel(
    "Answer tokens",
    "Made a second, all engines of a job together: what users get.",
    "count:tok/s",
    tuple(
        replace(query, expr=f"sum by (cluster, job) ({query.expr})", legend="{{job}}")
        for query in of("generation_tokens_per_second")
    ),
    width=6,
    runbooks=("standstill", "load_burst"),
    alerts=("LLMEngineStalled",),
)
_ERRORS = Panel(
    "Failed requests",
    "HTTP 5xx answers a second.",
    "reqps",
    of("http_errors_per_second", absent=shared.NO_SGLANG_ERRORS),
    width=6,
    runbooks=("failing_requests",),
    limits=(line("LLMRequestErrorsHigh", t.ERRORS_FLOOR),),
    drill="tenants",
)
_CONTEXT = Panel(
    "Context of active sessions",
    "95th percentile and median over sessions with a request in the last quarter of an hour.",
    "short",
    tuple(
        raw(
            f"histogram_quantile({q}, sum by (cluster, model, le) "
            f"(llmdiag_active_session_context_tokens_bucket{{{SESSIONS}}}))",
            f"{{{{model}}}} {name}",
            "llmdiag",
        )
        for q, name in ((0.95, "p95"), (0.5, "p50"))
    ),
    width=8,
    runbooks=("context_growth",),
    drill="sessions",
    label="model",
    variable="model",
)
_TENANT = Panel(
    "Largest tenant's share of tokens",
    "Of the last minutes.",
    "percentunit",
    (raw(f"max by (cluster, tenant) (llmdiag_tenant_token_share_ratio{{{EXPORTER}}})", "{{tenant}}", "llmdiag"),),
    width=8,
    maximum=1.0,
    runbooks=("tenant_dominance",),
    limits=(line("LLMTenantDominance", t.TENANT_SHARE),),
    drill="tenants",
    variable="",
)  # fmt: skip

INCIDENT = Board(
    "incident",
    "llm-diag / Incident overview",
    "The symptom first, then the rooms that can cause it: engine, cache, sessions, GPU, host, fabric. Every series "
    "leads to the board of its room, every panel to a runbook, and the menu to `diag triage` of this window.",
    (
        Row(
            "Symptom",
            ("unknown",),
            (
                shared.ttft(), shared.inter_token(), shared.e2e(),
                shared.slow_first_tokens(6), _TOKENS, _ERRORS, _FIRING,
            ),
        ),
        Row("Telemetry", ("telemetry_fault", "engine_stall"), (shared.up(12), _HEALTH)),
        Row(
            "Engine",
            ("load_burst", "head_of_line_blocking", "sequence_limit"),
            (shared.waiting(), shared.running(), shared.queue()),
        ),
        Row(
            "Cache",
            ("kv_cache_exhaustion", "prefix_cache_off", "prefix_cache_broken"),
            (shared.kv_usage(), shared.preemptions(), shared.hit_ratio()),
        ),
        Row(
            "Sessions",
            ("context_growth", "tenant_dominance", "network_latency"),
            (_CONTEXT, _TENANT, GAP),
        ),
        Row(
            "GPU",
            ("thermal_throttle", "power_cap", "noisy_neighbour"),
            (shared.thermal(), shared.temperature(), shared.foreign_sm()),
        ),
        Row(
            "Host",
            ("host_cpu_starvation", "host_memory_leak", "network_latency"),
            (CPU_PRESSURE, MEMORY, PROCESSES, replace(FAULTS, width=12), RETRANSMITS),
        ),
        Row(
            "Fabric",
            ("fabric_flap", "kv_transfer_failure", "stale_cache_peer"),
            (shared.link_downs(), shared.kv_failures(), shared.lookup_misses()),
        ),
    ),
)  # fmt: skip
