"""Rules about the rules: targets that are down, inputs that are missing, and a sign of life."""

from __future__ import annotations

from diag.assets.rules import thresholds as t
from diag.assets.rules.model import Alert, Recording, RuleFile, any_of
from diag.signals.algebra import spellings

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
    "llm:finished_requests_per_second",
)
"""What every version of every engine we know exports once it serves requests; none is ever NaN."""


def _spelt(*names: str) -> tuple[str, ...]:
    return tuple(spelt for name in names for spelt in spellings(name))


_BETWEEN = _spelt(
    "vllm:inter_token_latency_seconds_count",
    "vllm:time_per_output_token_seconds_count",
    "sglang:inter_token_latency_seconds_count",
    "sglang:time_per_output_token_seconds_count",
)
_BOUNDED = tuple(
    f'{name}{{le="{bound.value}"}}'
    for engine, bound in (("vllm", t.TTFT_BOUND), ("sglang", t.SGLANG_TTFT_BOUND))
    for name in spellings(f"{engine}:time_to_first_token_seconds_bucket")
)
_COUNTED = (
    "vllm:generation_tokens_total",
    "vllm:time_to_first_token_seconds_count",
    "vllm:request_success_total",
    "sglang:generation_tokens_total",
    "sglang:time_to_first_token_seconds_count",
    "sglang:num_requests_total",
)
# An engine that only prefills makes no answers, and SGLang then has no series for them.
_ANSWERS = '{server="",engine_type!="prefill"}'
_SIGNS = (
    *(f"rate({name}{_ANSWERS}[5m]) > 0" for name in _spelt(*_COUNTED)),
    *(f"{name}{_ANSWERS} > 0" for name in _spelt("vllm:num_requests_running", "sglang:num_running_reqs")),
)

_EXPORTS = Recording(
    "llm:engine_exports",
    f'group by ({_BY}) ({{__name__=~"(vllm|sglang)[:_].+", __name__!~"vllm_router_.+|.+_info", server=""}})',
    comment="1 for whoever exports any metric of an engine, whatever its name",
)
_SERVES = Recording(
    "llm:engine_serves",
    f"group by ({_BY}) (\n  " + "\n  or ".join(_SIGNS) + "\n)",
    comment="1 for engines that serve requests, by any sign of it",
)


def _missing(there: Recording, wanted: tuple[str, ...], name: str) -> str:
    one = wanted[0] if len(wanted) == 1 else "(\n    " + "\n    or ".join(wanted) + "\n  )"
    return f'label_replace(\n  {there.record} unless on ({_BY}) {one},\n  "input", "{name}", "", ""\n)'


_INPUT_MISSING = Alert(
    name="LLMRuleInputMissing",
    expr=any_of(
        _missing(_EXPORTS, INPUTS, "llm:*"),
        *(_missing(_SERVES, (name,), name) for name in INPUTS),
        _missing(_SERVES, _BETWEEN, "histogram of the time between tokens"),
        _missing(_SERVES, _BOUNDED, "bound of the first-token histogram"),
    ),
    severity="warning",
    component="meta",
    summary="Rules are blind: an engine does not export what they read.",
    description=(
        "{{ $labels.instance }} serves requests, but there is no {{ $labels.input }}: a metric was renamed, "
        "hidden or given other bounds, or the recordings are not loaded."
    ),
    runbook="blind_rules",
    dashboard="incident",
    needs=("vllm|sglang",),
    causes=("telemetry_fault", "config_change"),
    subject=("instance", "input"),
    for_seconds=900,
    comment=(
        "First: an engine's metrics are there, and none of our inputs. Then, for engines that serve "
        "requests, each input by itself. Engines create many series with their first request only."
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
    recordings=(_EXPORTS, _SERVES),
    alerts=(_DOWN, _INPUT_MISSING, _WATCHDOG),
)
