"""What users feel, by model: error budget of first tokens, slow tokens, failed requests.

Burn rates follow the usual scheme of a long and a short window: the long one says that it matters,
the short one that it still goes on. Slow requests are counted by the histogram's own bound, per
series first; a quantile would page for one slow request in a quiet hour, and be NaN in a stall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diag.assets.rules import thresholds as t
from diag.assets.rules.model import Alert, Recording, RuleFile, Severity, Threshold, all_of
from diag.signals.algebra import spellings

__all__ = ["SLO"]

_BY = "cluster, namespace, job, model_name"
_TTFT_WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d")
_ENGINES = ("vllm|sglang",)
_SLOW_START = (
    "context_growth", "load_burst", "kv_cache_exhaustion", "prefix_cache_off", "prefix_cache_broken",
    "head_of_line_blocking", "tenant_dominance", "thermal_throttle", "noisy_neighbour", "config_change",
)  # fmt: skip
_SLOW_TOKENS = (
    "prefill_interference", "thermal_throttle", "power_cap", "noisy_neighbour", "host_cpu_starvation",
    "cuda_graph_gap", "kv_cache_exhaustion", "gpu_link_degraded", "slow_gpu", "spec_decode_collapse",
    "grammar_stall", "runtime_pauses",
)  # fmt: skip


def _rates(names: tuple[str, ...], window: str, where: str = "") -> str:
    return " or ".join(f"rate({spelt}{where}[{window}])" for name in names for spelt in spellings(name))


def _slow(families: Mapping[str, tuple[str, ...]], bounds: Mapping[str, Threshold], window: str) -> str:
    """Share of observations above the bound; a series without that bound is not counted as slow."""
    counts = {eng: tuple(f"{name}_count" for name in names) for eng, names in families.items()}
    above = []
    for eng, names in families.items():
        within = _rates(tuple(f"{name}_bucket" for name in names), window, f'{{le="{bounds[eng].value}"}}')
        above.append(f"(({_rates(counts[eng], window)}) - ignoring (le) ({within}))")
    every = " or ".join(_rates(names, window) for names in counts.values())
    return f"sum by ({_BY}) ({' or '.join(above)}) / sum by ({_BY}) ({every})"


_TTFT = {
    "vllm": ("vllm:time_to_first_token_seconds",),
    "sglang": ("sglang:time_to_first_token_seconds",),
}
_BETWEEN = {
    "vllm": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "sglang": ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
}
_TTFT_BOUNDS = {"vllm": t.TTFT_BOUND, "sglang": t.SGLANG_TTFT_BOUND}
_BETWEEN_BOUNDS = {"vllm": t.INTER_TOKEN_BOUND, "sglang": t.INTER_TOKEN_BOUND}
_FIRST_TOKENS = ("vllm:time_to_first_token_seconds_count", "sglang:time_to_first_token_seconds_count")


def _recordings() -> tuple[Recording, ...]:
    slow = tuple(
        Recording(
            f"slo:ttft_slow:ratio_rate{w}", _slow(_TTFT, _TTFT_BOUNDS, w), comment=f"{_SLOW_TEXT}, over {w}"
        )
        for w in _TTFT_WINDOWS
    )
    counted = tuple(
        Recording(
            f"slo:first_tokens:rate{w}",
            f"sum by ({_BY}) ({_rates(_FIRST_TOKENS, w)})",
            comment=f"first tokens per second, over {w}",
        )
        for w in ("1h", "6h", "1d")
    )
    between = tuple(
        Recording(
            f"slo:inter_token_slow:ratio_rate{w}",
            _slow(_BETWEEN, _BETWEEN_BOUNDS, w),
            comment=f"share of tokens later than {t.INTER_TOKEN_BOUND} s after the one before, over {w}",
        )
        for w in ("5m", "1h")
    )
    return (*slow, *counted, *between)


_SLOW_TEXT = f"share of first tokens later than {t.TTFT_BOUND} s (SGLang: {t.SGLANG_TTFT_BOUND} s)"


@dataclass(frozen=True, slots=True)
class _Burn:
    name: str
    long: str
    short: str
    share: Threshold
    severity: Severity
    for_seconds: int
    look_back: str
    budget: str


_BURNS = (
    _Burn("Fast", "1h", "5m", t.BURN_FAST, "critical", 120, "3h", "two days"),
    _Burn("Medium", "6h", "30m", t.BURN_MEDIUM, "critical", 900, "12h", "five days"),
    _Burn("Slow", "1d", "2h", t.BURN_SLOW, "warning", 3600, "2d", "ten days"),
)


def _burn(burn: _Burn) -> Alert:
    return Alert(
        name=f"LLMTTFTBudgetBurn{burn.name}",
        expr=all_of(
            f"slo:ttft_slow:ratio_rate{burn.long} > {burn.share}",
            f"slo:ttft_slow:ratio_rate{burn.short} > {burn.share}",
            f"slo:first_tokens:rate{burn.long} > {t.FIRST_TOKENS_FLOOR}",
        ),
        severity=burn.severity,
        component="slo",
        summary="Too many requests wait too long for their first token.",
        description=(
            "{{ $value | humanizePercentage }} of the first tokens of {{ $labels.model_name }} came after "
            "more "
            f"than {t.TTFT_BOUND} s over the last {burn.long}, and it goes on: a month's error budget of 1 % "
            f"is gone in {burn.budget}."
        ),
        runbook="slow_first_token",
        dashboard="incident",
        needs=_ENGINES,
        causes=_SLOW_START,
        thresholds=(burn.share, t.FIRST_TOKENS_FLOOR, t.TTFT_BOUND, t.SGLANG_TTFT_BOUND, t.TTFT_OBJECTIVE),
        subject=("job", "model_name"),
        for_seconds=burn.for_seconds,
        look_back=burn.look_back,
        comment=f"Burn rate {burn.share.value / (1 - t.TTFT_OBJECTIVE.value):.1f} of a 99 % objective.",
    )


_INTER_TOKEN = Alert(
    name="LLMInterTokenSlow",
    expr=all_of(
        f"slo:inter_token_slow:ratio_rate1h > {t.INTER_TOKEN_SLOW_SHARE}",
        f"slo:inter_token_slow:ratio_rate5m > {t.INTER_TOKEN_SLOW_SHARE}",
        f"slo:first_tokens:rate1h > {t.FIRST_TOKENS_FLOOR}",
    ),
    severity="warning",
    component="slo",
    summary="Answers stutter: many tokens come late after the one before.",
    description=(
        "{{ $value | humanizePercentage }} of the tokens of {{ $labels.model_name }} came more than "
        f"{t.INTER_TOKEN_BOUND} s after the one before, over the last hour, and it goes on."
    ),
    runbook="slow_tokens",
    dashboard="incident",
    needs=_ENGINES,
    causes=_SLOW_TOKENS,
    thresholds=(t.INTER_TOKEN_SLOW_SHARE, t.INTER_TOKEN_BOUND, t.FIRST_TOKENS_FLOOR),
    subject=("job", "model_name"),
    for_seconds=300,
    look_back="3h",
)

_ERRORS_BY = "cluster, namespace, job"
_ERRORS = Alert(
    name="LLMRequestErrorsHigh",
    expr=all_of(
        f"sum by ({_ERRORS_BY}) (llm:http_errors_per_second)\n"
        f"/ sum by ({_ERRORS_BY}) (\n"
        "  llm:http_requests_per_second or on (cluster, job, instance) llm:finished_requests_per_second\n"
        f") > {t.ERROR_SHARE}",
        f"sum by ({_ERRORS_BY}) (llm:http_errors_per_second) > {t.ERRORS_FLOOR}",
    ),
    severity="critical",
    component="slo",
    summary="Requests fail with server errors.",
    description=(
        "{{ $value | humanizePercentage }} of the requests to {{ $labels.job }} ended in a 5xx answer."
    ),
    runbook="failing_requests",
    dashboard="incident",
    needs=_ENGINES,
    causes=("engine_restart", "engine_stall", "gpu_hardware_fault", "kv_transfer_failure", "proxy_limit"),
    thresholds=(t.ERROR_SHARE, t.ERRORS_FLOOR),
    subject=("job",),
    for_seconds=300,
    comment="SGLang counts no requests by status: its finished requests stand in.",
)

SLO = RuleFile(
    path="alerts/slo.yml",
    title="What users feel",
    text=(
        "First tokens, tokens in between, failed requests, by model. The share of slow first tokens is "
        "recorded here."
    ),
    needs=_ENGINES,
    recordings=_recordings(),
    alerts=(*map(_burn, _BURNS), _INTER_TOKEN, _ERRORS),
)
