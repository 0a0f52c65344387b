"""What only diag-exporter tells: sessions, tenants, aborts, engines' facts, lost GPUs, and itself."""

from __future__ import annotations

from diag.assets.rules import thresholds as t
from diag.assets.rules.model import Alert, RuleFile, all_of, any_of

__all__ = ["LLMDIAG"]

_OURS = ("llmdiag",)
_TARGET = "cluster, job, instance"

_NUMA = Alert(
    name="LLMEngineNumaMismatch",
    expr="llmdiag_engine_numa_match == 0",
    severity="info",
    component="engine",
    summary="An engine may run only on CPUs far from its GPU.",
    description=(
        "The engine on GPU {{ $labels.gpu }} at {{ $labels.instance }} is bound to CPUs of another NUMA "
        "node. Many such engines lose nothing: look for the effect first."
    ),
    runbook="numa_misplacement",
    dashboard="gpu",
    needs=_OURS,
    causes=("numa_misplacement",),
    subject=("instance", "gpu"),
    for_seconds=600,
)

_PORT = Alert(
    name="LLMEnginePortCollision",
    expr="increase(llmdiag_engine_bind_failures_total[15m]) > 0",
    severity="warning",
    component="engine",
    summary="An engine could not start: its port is taken.",
    description="{{ $labels.engine }} ended at its start since its address was in use.",
    runbook="port_conflict",
    dashboard="engine",
    needs=_OURS,
    causes=("port_conflict", "engine_restart"),
    subject=("engine",),
    keep_firing_seconds=600,
    comment="Read from the engine's log: diag-exporter follows it with --engine-log.",
)

_CONTEXT = Alert(
    name="LLMSessionContextNearLimit",
    expr=(
        "histogram_quantile(\n  0.99,\n"
        f"  sum by ({_TARGET}, model, le) (llmdiag_active_session_context_ratio_bucket)\n"
        f") > {t.CONTEXT_NEAR_LIMIT}"
    ),
    severity="warning",
    component="requests",
    summary="Conversations are about to reach the model's longest context.",
    description=(
        "The longest of the active sessions with {{ $labels.model }} fill {{ $value | humanizePercentage }} "
        "of the context; the next turns are cut or refused, and each is slow."
    ),
    runbook="context_growth",
    dashboard="sessions",
    needs=_OURS,
    causes=("context_growth",),
    thresholds=(t.CONTEXT_NEAR_LIMIT,),
    subject=("model",),
    for_seconds=900,
    look_back="6h",
    comment="A histogram of sessions as they are now, not since start: no rate().",
)

_TENANT = Alert(
    name="LLMTenantDominance",
    expr=all_of(
        f'llmdiag_tenant_token_share_ratio{{tenant!="other"}} > {t.TENANT_SHARE}',
        f"on ({_TARGET}) llmdiag_active_tenants >= {t.TENANTS_FEW}",
        "on (cluster) llm:waiting_requests > 0",
    ),
    severity="info",
    component="requests",
    summary="One tenant uses most of the tokens while requests wait.",
    description=(
        "Tenant {{ $labels.tenant }} has {{ $value | humanizePercentage }} of all tokens, and others wait."
    ),
    runbook="tenant_dominance",
    dashboard="tenants",
    needs=("llmdiag", "vllm|sglang"),
    causes=("tenant_dominance", "load_burst"),
    thresholds=(t.TENANT_SHARE, t.TENANTS_FEW),
    subject=("tenant",),
    for_seconds=600,
)

_ABORTS = Alert(
    name="LLMAbortWaste",
    expr=all_of(
        f"requests:aborted_ratio > {t.ABORTED_SHARE}",
        f"on ({_TARGET}) sum by ({_TARGET}) (rate(llmdiag_requests_total[5m])) > {t.FIRST_TOKENS_FLOOR}",
    ),
    severity="warning",
    component="requests",
    summary="Many clients leave before their answer is complete.",
    description=(
        "{{ $value | humanizePercentage }} of the requests seen by {{ $labels.instance }} were aborted."
    ),
    runbook="aborted_requests",
    dashboard="tenants",
    needs=_OURS,
    causes=("abandoned_requests", "proxy_limit", "client_limit", "load_burst", "context_growth"),
    thresholds=(t.ABORTED_SHARE, t.FIRST_TOKENS_FLOOR),
    subject=(),
    for_seconds=600,
    comment=(
        "Seen by a gateway's log or by the proxy: vLLM V1 counts no client that leaves (vllm issue 31503)."
    ),
)

_REUSE = Alert(
    name="LLMPrefixReuseMissed",
    expr=all_of(
        f"llmdiag_prompt_reuse_headroom_ratio > {t.REUSE_MISSED}",
        f"on ({_TARGET}, model) rate(llmdiag_cache_known_prompt_tokens_total[5m]) > {t.PROMPT_TOKENS_FLOOR}",
    ),
    severity="warning",
    component="cache",
    summary="Prompts repeat what was sent before, and it is computed again.",
    description=(
        "{{ $value | humanizePercentage }} of the prompt tokens to {{ $labels.model }} were sent before in "
        "the same session and yet came from no cache."
    ),
    runbook="prefix_cache_off",
    dashboard="sessions",
    needs=_OURS,
    causes=("prefix_cache_off", "prefix_cache_broken", "prefix_cache_scattered", "context_growth"),
    thresholds=(t.REUSE_MISSED, t.PROMPT_TOKENS_FLOOR),
    subject=("model",),
    for_seconds=900,
    look_back="6h",
)

_CLIENT_GAP = Alert(
    name="LLMClientGapHigh",
    expr=(
        "sum by (cluster, model) (rate(llmdiag_ttft_seconds_sum[5m]))\n"
        "/ sum by (cluster, model) (rate(llmdiag_ttft_seconds_count[5m]))\n"
        "- on (cluster, model) label_replace(\n"
        "  sum by (cluster, model_name) ((llm:ttft_seconds_mean >= 0) * llm:first_tokens_per_second)\n"
        "  / sum by (cluster, model_name) (llm:first_tokens_per_second),\n"
        '  "model", "$1", "model_name", "(.+)"\n'
        f") > {t.CLIENT_GAP}"
    ),
    severity="warning",
    component="requests",
    summary="Time to first token is lost outside the engine.",
    description=(
        "Callers of {{ $labels.model }} wait {{ $value | humanizeDuration }} longer for the first token than "
        "the engines took: network, gateway or client."
    ),
    runbook="network_latency",
    dashboard="incident",
    needs=("llmdiag", "vllm|sglang"),
    causes=("network_latency", "proxy_limit", "client_limit"),
    thresholds=(t.CLIENT_GAP,),
    subject=("model",),
    for_seconds=600,
    comment=(
        "Needs a feed that sees the caller's side: the proxy, or a gateway's log with times to first token."
    ),
)

_SEQUENCES = Alert(
    name="LLMSequenceLimit",
    expr=all_of(
        "llm:running_requests >= on (cluster, instance) group_left () (\n"
        f"  {t.SEQUENCES_PINNED} * max by (cluster, instance) (llm:max_num_seqs)\n)",
        "llm:waiting_requests > 0",
        f"llm:kv_cache_usage_ratio < {t.KV_FREE}",
    ),
    severity="warning",
    component="queue",
    summary="An engine's batch is at its limit while the cache has room.",
    description=(
        "{{ $labels.instance }} runs {{ $value | humanize }} requests, as many as it may, and others wait, "
        "though the KV pool has room."
    ),
    runbook="sequence_limit",
    dashboard="engine",
    needs=("llmdiag", "vllm|sglang"),
    causes=("sequence_limit", "load_burst", "config_change", "long_outputs"),
    thresholds=(t.SEQUENCES_PINNED, t.KV_FREE),
    for_seconds=600,
)

_UNHEALTHY = Alert(
    name="LLMEngineUnhealthy",
    expr="llmdiag_engine_up == 0",
    severity="critical",
    component="engine",
    summary="An engine does not answer its health check well.",
    description="{{ $labels.engine }}, asked by {{ $labels.instance }}, does not answer /health well.",
    runbook="target_down",
    dashboard="incident",
    needs=_OURS,
    causes=("engine_restart", "engine_stall", "port_conflict", "gpu_hardware_fault"),
    subject=("engine",),
    for_seconds=120,
)

_GPU_LOST = Alert(
    name="GPULost",
    expr=any_of("llmdiag_gpu_up == 0", "llmdiag_gpu_expected > llmdiag_gpu_visible"),
    severity="critical",
    component="gpu",
    summary="A GPU does not answer.",
    description="A GPU at {{ $labels.instance }} is lost, refuses until a reset, or has no driver.",
    runbook="gpu_hardware_fault",
    dashboard="gpu",
    needs=_OURS,
    causes=("gpu_hardware_fault",),
    subject=("instance", "gpu"),
    for_seconds=120,
)

_ABSENT = Alert(
    name="LLMExporterAbsent",
    expr=any_of('absent(up{job=~"llmdiag|diag-exporter"})', "llmdiag_up == 0"),
    severity="warning",
    component="meta",
    summary="diag-exporter is not scraped, or hangs.",
    description=(
        "No target of a job llmdiag or diag-exporter is there, or one of its sampling threads hangs: the "
        "alerts of this file are blind."
    ),
    runbook="blind_rules",
    dashboard="incident",
    needs=_OURS,
    causes=("telemetry_fault",),
    subject=(),
    for_seconds=600,
    comment="Job names as in deploy/. A driver call that hangs makes llmdiag_up 0.",
)

LLMDIAG = RuleFile(
    path="alerts/llmdiag.yml",
    title="What only diag-exporter tells",
    text="Load it where diag-exporter runs; LLMExporterAbsent fires where it does not.",
    needs=_OURS,
    alerts=(
        _NUMA, _PORT, _CONTEXT, _TENANT, _ABORTS, _REUSE, _CLIENT_GAP, _SEQUENCES, _UNHEALTHY, _GPU_LOST,
        _ABSENT,
    ),
)  # fmt: skip
