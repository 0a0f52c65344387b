"""rules/alerts/meta.yml: rules about the rules."""

from __future__ import annotations

from dataclasses import replace

from tests.rules.cases.case import Case, Fires, Told, counter, gauge, silent
from tests.rules.cases.engines import (
    SGLANG,
    SPELLINGS,
    UNDERSCORED,
    V1,
    Dialect,
    first_tokens,
    tokens_between,
    written,
)

__all__ = ["CASES"]

_DOWN = Told(
    "LLMTargetDown", "critical", "meta", "A target of the LLM service cannot be scraped.",
    "target_down", "incident", ("job", "instance"),
)  # fmt: skip
_BLIND = Told(
    "LLMRuleInputMissing", "warning", "meta", "Rules are blind: an engine does not export what they read.",
    "blind_rules", "incident", ("instance", "input"),
)  # fmt: skip
_WATCHDOG = Told(
    "LLMWatchdog", "none", "meta", "The rules are evaluated and alerts arrive.", "watchdog", "incident", ()
)


def _up(job: str, instance: str = "a:8000") -> dict[str, str]:
    return {written("up", {"instance": instance, "job": job}): gauge((20, 1), (40, 0), (30, 1))}


def _gone(job: str) -> Fires:
    return Fires(
        {"instance": "a:8000", "job": job}, f"a:8000 of {job} has not answered its scrapes for five minutes."
    )


_CARD = 'llmdiag_gpu_utilization_ratio{instance="a:8000",job="cards",gpu="0",uuid="GPU-1"}'
_OTHERS = replace(V1, job="inference")
_DOWNS = (
    Case(
        _DOWN, "an engine under any job name",
        {**_up("inference"), _OTHERS.series("num_requests_running"): gauge((20, 1))},
        silent=(19, 24, 60), fires={25: [_gone("inference")]},
    ),
    Case(
        _DOWN, "a GPU exporter under any job name", {**_up("cards"), _CARD: gauge((20, 0.5))},
        silent=(19, 24, 60), fires={25: [_gone("cards")]},
    ),
    *(
        Case(_DOWN, f"never seen, called {job}", _up(job), silent=(19, 24, 60), fires={25: [_gone(job)]})
        for job in ("my-vllm", "sglang-prod", "llmdiag", "diag-exporter", "dcgm-exporter", "nvidia-smi")
    ),
    silent(_DOWN, "something else", _up("web"), 25, 55),
)  # fmt: skip


def _serving(engine: Dialect) -> dict[str, dict[str, str]]:
    """Every input of a serving engine, by what the alert calls it."""
    done = "num_requests_total" if engine.job == "sglang" else "request_success_total"
    first = first_tokens(engine, (60, 10, 0.1))
    bound = {name: values for name, values in first.items() if f'le="{engine.slow_first}"' in name}
    return {
        "llm:running_requests": {engine.series(engine.running): "2x60"},
        "llm:waiting_requests": {engine.series(engine.waiting): "0x60"},
        "llm:kv_cache_usage_ratio": {engine.series(engine.kv_usage): "0.3x60"},
        "llm:first_tokens_per_second": {name: values for name, values in first.items() if "_count" in name},
        "llm:prompt_tokens_per_second": {engine.series("prompt_tokens_total"): counter((60, 900))},
        "llm:generation_tokens_per_second": {engine.series("generation_tokens_total"): counter((60, 300))},
        "llm:finished_requests_per_second": {engine.series(done): counter((60, 10))},
        "histogram of the time between tokens": tokens_between(engine, (60, 300, 0.1)),
        "bound of the first-token histogram": bound,
    }


def _without(engine: Dialect, missing: str = "") -> dict[str, str]:
    parts = (series for name, series in _serving(engine).items() if name != missing)
    return {name: values for series in parts for name, values in series.items()}


def _blind(job: str, missing: str) -> Fires:
    return Fires(
        {"instance": "a:8000", "job": job, "input": missing},
        f"a:8000 serves requests, but there is no {missing}: a metric was renamed, hidden or given other bounds, or the "
        "recordings are not loaded.",
    )


def _alone() -> dict[str, str]:
    """Idle engines, each of which exports one input only."""
    found: dict[str, str] = {}
    for at, series in enumerate(list(_serving(V1).values())[:7]):
        for name in series:
            found[name.replace("a:8000", f"idle-{at}:8000")] = "0x60"
    return found


# Rates need two scrapes: gauges are seen missing at 1 where a counter tells of work, counters likewise.
_BLINDS = (
    *(silent(_BLIND, f"all is there, {engine.name}", _without(engine), 16, 20) for engine in SPELLINGS),
    *(
        Case(
            _BLIND, f"no {missing}, {engine.name}", _without(engine, missing), silent=(0, 14),
            fires={16: [_blind(engine.job, missing)]},
        )
        for engine in (V1, SGLANG)
        for missing in _serving(engine)
    ),
    Case(
        _BLIND, "every name is new", {V1.series("tokens_made_total"): "_x20 " + counter((40, 100))}, silent=(20, 34),
        fires={35: [_blind("vllm", "llm:*")]},
    ),
    Case(
        _BLIND, "every name is new, vllm_ spelling", {UNDERSCORED.series("tokens_made_total"): "_x20 " + counter((40, 100))},
        silent=(20, 34), fires={35: [_blind("vllm", "llm:*")]},
    ),
    Case(
        _BLIND, "it comes back", {**_without(V1, "llm:waiting_requests"), V1.series("num_requests_waiting"): "_x20 0x20"},
        silent=(14, 20), fires={16: [_blind("vllm", "llm:waiting_requests")]},
    ),
    silent(_BLIND, "idle engines with one input each", _alone(), 16, 20),
)  # fmt: skip

_HEARTBEAT = Fires({}, "This alert always fires. Have somebody outside notice when it stops coming.")

CASES = (
    *_DOWNS,
    *_BLINDS,
    Case(_WATCHDOG, "always", {}, fires={0: [_HEARTBEAT], 30: [_HEARTBEAT]}),
)
"""Every case of this file."""
