"""Rules about the rules: targets that are down, inputs that are missing, and a sign of life."""

from __future__ import annotations

from diag.assets.rules import thresholds as t
from diag.assets.rules.model import Alert, RuleFile, any_of

__all__ = ["INPUTS", "META"]

_BY = "cluster, job, instance"
_OUR_JOBS = ".*(vllm|sglang|llmdiag|diag-exporter|dcgm|nvidia).*"

_DOWN = Alert(
    name="LLMTargetDown",
    expr=(
        "up == 0\n"
        "and on (cluster, job) (\n"
        "  present_over_time(llm:running_requests[1d])\n"
        "  or present_over_time(gpu:utilization_ratio[1d])\n"
        f'  or up{{job=~"{_OUR_JOBS}"}} == 0\n'
        ")"
    ),
    severity="critical",
    component="meta",
    summary="A target of the LLM service cannot be scraped.",
    description="{{ $labels.instance }} of {{ $labels.job }} has not answered its scrapes for five minutes.",
    runbook="target_down",
    dashboard="incident",
    needs=(),
    causes=("engine_restart", "engine_stall", "port_conflict", "telemetry_fault", "gpu_hardware_fault"),
    subject=("job", "instance"),
    for_seconds=300,
    comment="Of jobs that told about engines or GPUs within a day, or whose name says that they would.",
)

INPUTS = (
    "llm:running_requests",
    "llm:waiting_requests",
    "llm:kv_cache_usage_ratio",
    "llm:first_tokens_per_second",
    "llm:prompt_tokens_per_second",
    "llm:generation_tokens_per_second",
    "llm:ttft_seconds_p95",
    "llm:inter_token_seconds_mean",
    "llm:finished_requests_per_second",
)
"""What every version of every engine we know exports once it serves requests."""

_BUCKETS = (
    f'vllm:time_to_first_token_seconds_bucket{{le="{t.TTFT_BOUND.value}"}}',
    f'vllm_time_to_first_token_seconds_bucket{{le="{t.TTFT_BOUND.value}"}}',
    f'sglang:time_to_first_token_seconds_bucket{{le="{t.SGLANG_TTFT_BOUND.value}"}}',
    f'sglang_time_to_first_token_seconds_bucket{{le="{t.SGLANG_TTFT_BOUND.value}"}}',
)

# Whatever an engine exports under whichever name; the routers repeat engines' names with a label.
_ENGINES = (
    f"group by ({_BY}) (\n"
    '    {__name__=~"(vllm|sglang)[:_].+", __name__!~"vllm_router_.+|.+_info", server=""}\n  )'
)
_SERVING = (
    f"group by ({_BY}) (\n"
    "    llm:generation_tokens_per_second > 0\n"
    "    or llm:first_tokens_per_second > 0\n"
    "    or llm:finished_requests_per_second > 0\n"
    "    or llm:running_requests > 0\n  )"
)


def _missing(there: str, wanted: str, name: str) -> str:
    return f'label_replace(\n  {there}\n  unless on ({_BY}) ({wanted}),\n  "input", "{name}", "", ""\n)'


_INPUT_MISSING = Alert(
    name="LLMRuleInputMissing",
    expr=any_of(
        _missing(_ENGINES, " or ".join(INPUTS), "llm:*"),
        *(_missing(_SERVING, name, name) for name in INPUTS),
        _missing(
            _SERVING, "\n    " + "\n    or ".join(_BUCKETS) + "\n  ", "bound of the first-token histogram"
        ),
    ),
    severity="warning",
    component="meta",
    summary="Rules are blind: an engine does not export what they read.",
    description=(
        "{{ $labels.instance }} serves requests, but there is no {{ $labels.input }}: a metric was renamed, "
        "hidden or "
        "given other bounds, or the recordings are not loaded."
    ),
    runbook="blind_rules",
    dashboard="incident",
    needs=("vllm|sglang",),
    causes=("telemetry_fault", "config_change"),
    subject=("instance", "input"),
    for_seconds=900,
    comment=(
        "First: an engine's metrics are there, and none of our inputs. Then, for engines that serve "
        "requests, each "
        "input by itself. Engines create many series with their first request only."
    ),
)

_WATCHDOG = Alert(
    name="LLMWatchdog",
    expr="vector(1)",
    severity="none",
    component="meta",
    summary="The rules are evaluated and alerts arrive.",
    description="This alert always fires. Have somebody outside notice when it stops coming.",
    runbook="watchdog",
    dashboard="incident",
    needs=(),
    subject=(),
)

META = RuleFile(
    path="alerts/meta.yml",
    title="Rules about the rules",
    text="Targets that are down, inputs that are missing, a sign of life.",
    needs=(),
    alerts=(_DOWN, _INPUT_MISSING, _WATCHDOG),
)
