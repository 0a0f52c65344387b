"""Series as engines write them, by the minute: vLLM V1 and V0, the ``vllm_`` spelling, SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.rules.cases.case import counter

__all__ = [
    "ENGINES",
    "SGLANG",
    "SPELLINGS",
    "UNDERSCORED",
    "V0",
    "V1",
    "Dialect",
    "first_tokens",
    "recorded_of",
    "tokens_between",
    "written",
]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine spells things. ``own``: labels that its series bear beside the target's."""

    name: str
    prefix: str
    own: Mapping[str, str]
    job: str
    between: str
    slow_first: str
    kv_usage: str = ""
    waiting: str = "num_requests_waiting"
    running: str = "num_requests_running"
    model: str = "m"

    def labels(self, instance: str = "a:8000", **more: str) -> dict[str, str]:
        """The labels of one of its series."""
        return {"instance": instance, "job": self.job, "model_name": self.model, **self.own, **more}

    def series(self, metric: str, instance: str = "a:8000", **more: str) -> str:
        """One of its series by the name without the prefix."""
        return written(self.prefix + metric, self.labels(instance, **more))


def written(name: str, labels: Mapping[str, str]) -> str:
    """A series as promtool and PromQL read it."""
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"


def recorded_of(engine: Dialect, instance: str = "a:8000") -> dict[str, str]:
    """The labels of what is recorded of an engine."""
    producer = "sglang" if engine.job == "sglang" else "vllm"
    return {"instance": instance, "job": engine.job, "model_name": engine.model, "producer": producer}


V1 = Dialect(
    "vLLM V1", "vllm:", {"engine": "0"}, "vllm", "inter_token_latency_seconds", "5.0", "kv_cache_usage_perc"
)
V0 = Dialect("vLLM V0", "vllm:", {}, "vllm", "time_per_output_token_seconds", "5.0", "gpu_cache_usage_perc")
UNDERSCORED = Dialect(
    "vllm_ spelling",
    "vllm_",
    {"engine": "0"},
    "vllm",
    "inter_token_latency_seconds",
    "5.0",
    "kv_cache_usage_perc",
)
SGLANG = Dialect(
    "SGLang", "sglang:", {"tp_rank": "0", "pp_rank": "0", "engine_type": "unified"}, "sglang",
    "inter_token_latency_seconds", "6.0", "token_usage", "num_queue_reqs", "num_running_reqs",
)  # fmt: skip
ENGINES = (V1, V0, UNDERSCORED, SGLANG)
_OLD_SGLANG = replace(SGLANG, name="SGLang, older name", between="time_per_output_token_seconds")
SPELLINGS = (
    *ENGINES,
    _OLD_SGLANG,
    replace(V0, name="vLLM V0, vllm_ spelling", prefix="vllm_"),
    replace(SGLANG, name="SGLang, sglang_ spelling", prefix="sglang_"),
    replace(_OLD_SGLANG, name="SGLang, older name, sglang_ spelling", prefix="sglang_"),
)

_Pieces = tuple[tuple[int, float, float], ...]


def _shares(
    engine: Dialect, metric: str, bound: str, instance: str, pieces: _Pieces, every: int = 1
) -> dict[str, str]:
    count = tuple((minutes // every, rate * every) for minutes, rate, _ in pieces)
    within = tuple((minutes // every, rate * every * (1 - slow)) for minutes, rate, slow in pieces)
    return {
        engine.series(f"{metric}_count", instance): counter(*count),
        engine.series(f"{metric}_bucket", instance, le=bound): counter(*within),
        engine.series(f"{metric}_bucket", instance, le="+Inf"): counter(*count),
    }


def first_tokens(
    engine: Dialect, *pieces: tuple[int, float, float], instance: str = "a:8000", every: int = 1
) -> dict[str, str]:
    """Minutes, first tokens a minute, share of them slower than the bound that the engine's histogram has."""
    return _shares(engine, "time_to_first_token_seconds", engine.slow_first, instance, pieces, every)


def tokens_between(
    engine: Dialect, *pieces: tuple[int, float, float], instance: str = "a:8000"
) -> dict[str, str]:
    """Minutes, tokens a minute, share of them more than 0.4 s after the one before."""
    return _shares(engine, engine.between, "0.4", instance, pieces)
