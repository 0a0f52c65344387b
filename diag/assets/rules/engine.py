"""The engine and its queue, by instance: stands still, restarts, queues, serves other work than before."""

from __future__ import annotations

from diag.assets.rules import thresholds as t
from diag.assets.rules.model import Alert, RuleFile, all_of, any_of
from diag.signals.algebra import spellings

__all__ = ["ENGINE"]

_ENGINES = ("vllm|sglang",)
_TARGET = "cluster, namespace, job, instance"
_MODEL = "cluster, namespace, job, model_name"


def _raw(function: str, window: str, *names: str) -> str:
    calls = (f"{function}({spelt}[{window}])" for name in names for spelt in spellings(name))
    return " or ".join(calls)


_STALLED = Alert(
    name="LLMEngineStalled",
    expr=all_of(
        "llm:running_requests > 0",
        "llm:generation_tokens_per_second == 0",
        "llm:prompt_tokens_per_second == 0\nunless llm:steps_per_second > 0",
    ),
    severity="critical",
    component="engine",
    summary="An engine holds requests and makes no tokens.",
    description=(
        "{{ $labels.instance }} has {{ $value | humanize }} requests in its batch and made no token for five "
        "minutes. Its health check may still be good."
    ),
    runbook="standstill",
    dashboard="engine",
    needs=_ENGINES,
    causes=("engine_stall", "gpu_hardware_fault", "kv_transfer_failure", "telemetry_fault"),
    for_seconds=120,
    comment="A long prefill makes no token either, but it makes steps, which vLLM counts.",
)

_STANDSTILL = Alert(
    name="LLMQueueStandstill",
    expr=all_of(
        "llm:waiting_requests > 0",
        "llm:running_requests_max == 0",
        "llm:generation_tokens_per_second == 0",
    ),
    severity="warning",
    component="queue",
    summary="Requests wait and none is admitted.",
    description=(
        "{{ $value | humanize }} requests wait at {{ $labels.instance }}, and nothing ran for five minutes: "
        "the first in line may need more cache than there is, or wait for a transfer that never comes."
    ),
    runbook="standstill",
    dashboard="engine",
    needs=_ENGINES,
    causes=("oversized_request", "engine_stall", "kv_transfer_failure", "kv_block_leak"),
    for_seconds=300,
)

_RESTART_LOOP = Alert(
    name="LLMEngineRestartLoop",
    expr=any_of(
        f"max by ({_TARGET}) (changes(llm:engine_start_time_seconds[30m])) > {t.RESTARTS}",
        f"max by ({_TARGET}) (\n"
        f"  {_raw('resets', '30m', 'vllm:prompt_tokens_total', 'sglang:prompt_tokens_total')}\n"
        f") > {t.RESTARTS}",
    ),
    severity="critical",
    component="engine",
    summary="An engine restarts again and again.",
    description="{{ $labels.instance }} restarted {{ $value | humanize }} times within half an hour.",
    runbook="engine_restart",
    dashboard="engine",
    needs=_ENGINES,
    causes=("engine_restart", "port_conflict", "gpu_hardware_fault", "host_memory_leak", "config_change"),
    thresholds=(t.RESTARTS,),
    keep_firing_seconds=900,
    comment="With several API servers vLLM tells no start time: then its counters' resets are counted.",
)

_QUEUE_GROWING = Alert(
    name="LLMQueueGrowing",
    expr=all_of(
        f"min_over_time(llm:waiting_requests[5m]) > {t.QUEUE_LONG}",
        "(deriv(llm:waiting_requests[10m]) > 0 or llm:waiting_requests > llm:running_requests)",
    ),
    severity="warning",
    component="queue",
    summary="The queue in front of an engine is long and does not drain.",
    description=(
        "At least {{ $value | humanize }} requests waited at {{ $labels.instance }} for the last five "
        "minutes; the queue grows, or is longer than the batch."
    ),
    runbook="queue_growing",
    dashboard="engine",
    needs=_ENGINES,
    causes=("load_burst", "sequence_limit", "kv_cache_exhaustion", "tenant_dominance", "long_outputs"),
    thresholds=(t.QUEUE_LONG,),
    for_seconds=300,
)

_HEAD_OF_LINE = Alert(
    name="LLMHeadOfLineBlocking",
    expr=all_of(
        f"llm:ttft_seconds_p95 > {t.TTFT_TAIL}",
        f"llm:ttft_seconds_p95 > {t.TAIL_APART} * llm:ttft_seconds_p50",
        f"llm:prompt_tokens_per_request_p99 > {t.GIANTS_APART} * llm:prompt_tokens_per_request_p50",
        f"llm:kv_cache_usage_ratio < {t.KV_FREE}",
    ),
    severity="warning",
    component="queue",
    summary="A few giant prompts hold up the short ones.",
    description=(
        "At {{ $labels.instance }} the slowest twentieth waits {{ $value | humanizeDuration }} for the first "
        "token, more than five times the median; so differ the prompts' lengths, and the cache has room."
    ),
    runbook="head_of_line_blocking",
    dashboard="engine",
    needs=_ENGINES,
    causes=("head_of_line_blocking", "prefill_interference", "context_growth"),
    thresholds=(t.TTFT_TAIL, t.TAIL_APART, t.GIANTS_APART, t.KV_FREE),
    for_seconds=600,
    comment="Waiting requests and queue time can stay 0 meanwhile: engines publish between steps.",
)

_HOTSPOT = Alert(
    name="LLMRoutingHotspot",
    expr=all_of(
        f"max by ({_MODEL}) (llm:waiting_requests) > {t.QUEUE_LONG}",
        f"min by ({_MODEL}) (llm:waiting_requests) < {t.IDLE_WAITING}",
    ),
    severity="warning",
    component="queue",
    summary="Requests queue at one replica while another has room.",
    description=(
        "{{ $value | humanize }} requests of {{ $labels.model_name }} wait at one replica of "
        "{{ $labels.job }}, none at another: the router sends too much to one."
    ),
    runbook="routing_hotspot",
    dashboard="engine",
    needs=_ENGINES,
    causes=("routing_hotspot", "slow_gpu", "engine_stall"),
    thresholds=(t.QUEUE_LONG, t.IDLE_WAITING),
    subject=("job", "model_name"),
    for_seconds=600,
)

_USUAL_PROMPT = "avg_over_time((llm:prompt_tokens_per_request_mean >= 0)[1d:5m] offset 1h)"
_PROMPTS = Alert(
    name="LLMPromptLengthGrowing",
    expr=all_of(
        f"llm:prompt_tokens_per_request_mean > {t.PROMPTS_GROWN} * {_USUAL_PROMPT}",
        f"llm:prompt_tokens_per_request_mean > {t.PROMPTS_LONG}",
        f"llm:finished_requests_per_second > {t.FIRST_TOKENS_FLOOR}",
    ),
    severity="warning",
    component="engine",
    summary="Prompts are much longer than they were the day before.",
    description=(
        "Prompts at {{ $labels.instance }} have {{ $value | humanize }} tokens on average, more than twice "
        "what they had over the day before: histories grow, or a client changed."
    ),
    runbook="context_growth",
    dashboard="sessions",
    needs=_ENGINES,
    causes=("context_growth", "config_change", "load_burst"),
    thresholds=(t.PROMPTS_GROWN, t.PROMPTS_LONG, t.FIRST_TOKENS_FLOOR),
    for_seconds=1200,
    look_back="1d",
    comment="The subquery leaves out NaN, which the mean is while no request ends: it would last for a day.",
)

_CONFIG = "(vllm:cache_config_info or vllm_cache_config_info)"
_CONFIG_BEFORE = "(vllm:cache_config_info offset 30m or vllm_cache_config_info offset 30m)"
_CONFIG_CHANGED = Alert(
    name="LLMEngineConfigChanged",
    expr=(
        f"count by ({_TARGET}) (\n"
        f"  {_CONFIG}\n"
        f"  unless {_CONFIG_BEFORE}\n"
        f"  and on ({_TARGET}) {_CONFIG_BEFORE}\n"
        ") > 0"
    ),
    severity="info",
    component="engine",
    summary="An engine came back with another cache configuration.",
    description="{{ $labels.instance }} runs with another cache configuration than half an hour ago.",
    runbook="config_change",
    dashboard="engine",
    needs=("vllm",),
    causes=("config_change", "engine_restart", "kv_cache_exhaustion", "prefix_cache_off"),
    comment="Measured block counts differ a little after each start: an annotation, never a page.",
)

ENGINE = RuleFile(
    path="alerts/engine.yml",
    title="The engine and its queue",
    text="Stands still, restarts, queues, or serves other work than before.",
    needs=_ENGINES,
    alerts=(
        _STALLED, _STANDSTILL, _RESTART_LOOP, _QUEUE_GROWING, _HEAD_OF_LINE, _HOTSPOT, _PROMPTS,
        _CONFIG_CHANGED,
    ),
)  # fmt: skip
