"""The KV pool and the prefix cache, by instance."""

from __future__ import annotations

from diag.assets.rules import thresholds as t
from diag.assets.rules.model import Alert, RuleFile, all_of

__all__ = ["CACHE"]

_ENGINES = ("vllm|sglang",)

_SATURATED = Alert(
    name="LLMKVCacheSaturated",
    expr=all_of(
        f"min_over_time(llm:kv_cache_usage_ratio[5m]) > {t.KV_FULL}",
        "min_over_time(llm:waiting_requests[5m]) > 0",
    ),
    severity="warning",
    component="cache",
    summary="The KV pool is full and requests wait for it.",
    description=(
        "{{ $value | humanizePercentage }} of the KV pool of {{ $labels.instance }} has been in use for five "
        "minutes, and requests wait. Full alone would be healthy."
    ),
    runbook="kv_cache_exhaustion",
    dashboard="cache",
    needs=_ENGINES,
    causes=("kv_cache_exhaustion", "context_growth", "load_burst", "long_outputs", "config_change"),
    thresholds=(t.KV_FULL,),
    for_seconds=300,
)

_PREEMPTION = Alert(
    name="LLMPreemptionShareHigh",
    expr=all_of(
        f"llm:preemptions_per_second / llm:finished_requests_per_second > {t.PREEMPTED_SHARE}",
        f"llm:preemptions_per_second > {t.PREEMPTIONS_FLOOR}",
    ),
    severity="warning",
    component="cache",
    summary="Requests are preempted and computed again.",
    description=(
        '{{ $labels.instance }} preempts {{ printf "%.2g" $value }} requests for each one that it '
        "finishes; what was computed for them is lost, and their users wait twice."
    ),
    runbook="kv_cache_exhaustion",
    dashboard="cache",
    needs=_ENGINES,
    causes=("kv_cache_exhaustion", "context_growth", "load_burst", "config_change"),
    thresholds=(t.PREEMPTED_SHARE, t.PREEMPTIONS_FLOOR),
    for_seconds=300,
)

_USUAL_HITS = "avg_over_time((llm:prefix_cache_hit_ratio >= 0)[1d:5m] offset 1h)"
_HIT_COLLAPSE = Alert(
    name="LLMPrefixCacheHitCollapse",
    expr=all_of(
        f"llm:prefix_cache_hit_ratio < {t.HITS_HALVED} * {_USUAL_HITS}",
        f"{_USUAL_HITS} > {t.HITS_WORTH_HAVING}",
        f"llm:prefix_cache_query_tokens_per_second > {t.PROMPT_TOKENS_FLOOR}",
    ),
    severity="warning",
    component="cache",
    summary="The prefix cache hits far less than it used to.",
    description=(
        "{{ $value | humanizePercentage }} of the prompt tokens at {{ $labels.instance }} come from the "
        "prefix cache, less than half of what it was over the day before."
    ),
    runbook="prefix_cache_broken",
    dashboard="cache",
    needs=_ENGINES,
    causes=("prefix_cache_broken", "prefix_cache_scattered", "kv_cache_exhaustion", "engine_restart"),
    thresholds=(t.HITS_HALVED, t.HITS_WORTH_HAVING, t.PROMPT_TOKENS_FLOOR),
    for_seconds=900,
    look_back="6h",
    comment=(
        "The subquery leaves out NaN, which the ratio is while nothing is looked up: it would last for a day."
    ),
)

_OFF = '{enable_prefix_caching="False"}'
_ON = "cluster, job, instance"
_CACHING_OFF = Alert(
    name="LLMPrefixCachingDisabled",
    expr=all_of(
        f"max by ({_ON}) (\n  vllm:cache_config_info{_OFF}\n  or vllm_cache_config_info{_OFF}\n) == 1",
        f"on ({_ON}) llm:prompt_tokens_per_second > {t.PROMPT_TOKENS_FLOOR}",
        f"on ({_ON}) llm:prompt_tokens_per_request_mean > {t.PROMPTS_LONG}",
    ),
    severity="info",
    component="cache",
    summary="Prefix caching is off while long prompts come in.",
    description=(
        "{{ $labels.instance }} computes every prompt from its first token, and prompts are long. Where "
        "turns resend their history, that is most of the work."
    ),
    runbook="prefix_cache_off",
    dashboard="cache",
    needs=("vllm",),
    causes=("prefix_cache_off", "config_change", "context_growth"),
    thresholds=(t.PROMPT_TOKENS_FLOOR, t.PROMPTS_LONG),
    for_seconds=1800,
    comment="Old V0 engines say None for off; newer ones say it before they decide, so None tells nothing.",
)

_BLOCK_LEAK = Alert(
    name="LLMKVBlockLeak",
    expr=all_of(
        f"llm:kv_cache_usage_ratio > {t.KV_HELD}",
        "llm:running_requests_max == 0",
        "llm:waiting_requests == 0",
    ),
    severity="warning",
    component="cache",
    summary="KV blocks stay taken while nothing runs.",
    description=(
        "{{ $value | humanizePercentage }} of the KV pool of {{ $labels.instance }} is held though nothing "
        "runs or waits."
    ),
    runbook="kv_block_leak",
    dashboard="cache",
    needs=_ENGINES,
    causes=("kv_block_leak", "telemetry_fault", "kv_transfer_failure"),
    thresholds=(t.KV_HELD,),
    for_seconds=900,
    look_back="6h",
)

CACHE = RuleFile(
    path="alerts/cache.yml",
    title="The KV pool and the prefix cache",
    text=(
        "A full pool alone is healthy; what hurts is waiting for it, computing twice, and hits that stay "
        "away."
    ),
    needs=_ENGINES,
    alerts=(_SATURATED, _PREEMPTION, _HIT_COLLAPSE, _CACHING_OFF, _BLOCK_LEAK),
)
