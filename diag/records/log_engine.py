"""What engines say about themselves every few seconds, as values of canonical signals.

Shapes: vLLM V0 (percent, "Pending", GPU and CPU pools), vLLM V1 (percent, "Waiting", one pool),
SGLang (fractions, "#running-req"). The hit rate in vLLM's line is over its last 1000 requests, so it
lags; SGLang's is of one prefill batch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["EngineSample", "engine_sample", "prompt_signal"]

_ENGINE = re.compile(r"Engine (\d+): ")
_VLLM_FIELDS: tuple[tuple[str, re.Pattern[str], float], ...] = (
    ("generation_tokens_per_second", re.compile(r"Avg generation throughput: (\d+(?:\.\d+)?) tokens/s"), 1.0),
    ("running_requests", re.compile(r"Running: (\d+) reqs"), 1.0),
    ("waiting_requests", re.compile(r"(?:Waiting|Pending): (\d+) reqs"), 1.0),
    ("waiting_deferred_requests", re.compile(r"Deferred: (\d+) reqs"), 1.0),
    ("kv_cache_usage_ratio", re.compile(r"\w+(?: \+ host)? KV cache usage: (\d+(?:\.\d+)?)%"), 100.0),
    ("prefix_cache_hit_ratio", re.compile(r"\bPrefix cache hit rate: (?:GPU: )?(\d+(?:\.\d+)?)%"), 100.0),
    ("spec_decode_acceptance_ratio", re.compile(r"Avg Draft acceptance rate: (\d+(?:\.\d+)?)%"), 100.0),
    ("spec_decode_acceptance_ratio", re.compile(r"metrics: Draft acceptance rate: (\d+(?:\.\d+)?)"), 1.0),
)
_PROMPT = re.compile(r"Avg prompt throughput: (\d+(?:\.\d+)?) tokens/s")
_PREEMPTIONS = re.compile(r"\bPreemptions: (\d+)")
_DEVICE = re.compile(r"(\w+)(?: \+ host)? KV cache usage: ")

_SGLANG_FIELDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("running_requests", re.compile(r"#running-req: (\d+)")),
    ("waiting_requests", re.compile(r"#queue-req: (\d+)")),
    ("generation_tokens_per_second", re.compile(r"gen throughput \(token/s\): (\d+(?:\.\d+)?)")),
    ("kv_cache_usage_ratio", re.compile(r"token usage: (\d+(?:\.\d+)?)")),
)
_NEW_TOKENS = re.compile(r"#new-token: (\d+)")
_CACHED_TOKENS = re.compile(r"#cached-token: (\d+)")


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One periodic line. ``prompt_rate`` is apart because its meaning depends on the version;
    ``engine`` tells data-parallel engines of one server apart ("" when there is one)."""

    producer: str
    engine: str
    values: dict[str, float]
    prompt_rate: float | None = None
    preemptions: int | None = None
    hints_computed: bool = False
    hints_all: bool = False


def engine_sample(text: str, ranks: dict[str, int]) -> EngineSample | None:
    """The values on a periodic line, or None when ``text`` is another line.

    Of SGLang's tensor- and pipeline-parallel ranks, which repeat one truth, only rank 0 counts.
    """
    if "batch" in text and "#running-req: " in text:
        return None if ranks.get("TP", 0) or ranks.get("PP", 0) else _sglang(text, ranks)
    if "Running: " in text or "ache hit rate: " in text or "acceptance rate: " in text:
        return _vllm(text)
    return None


def _vllm(text: str) -> EngineSample | None:
    values: dict[str, float] = {}
    for signal, pattern, divisor in _VLLM_FIELDS:
        if signal not in values and (match := pattern.search(text)):
            values[signal] = float(match[1]) / divisor
    if not values:
        return None
    engine, prompt, device = _ENGINE.search(text), _PROMPT.search(text), _DEVICE.search(text)
    preemptions = _PREEMPTIONS.search(text)
    old = "Pending: " in text or "Swapped: " in text
    return EngineSample(
        producer="log:vllm",
        engine=str(int(engine[1])) if engine else "",
        values=values,
        prompt_rate=float(prompt[1]) if prompt else None,
        preemptions=int(preemptions[1]) if preemptions else None,
        hints_computed=not old and _is_recent(text, device[1] if device else ""),
        hints_all=old,
    )


def _is_recent(text: str, device: str) -> bool:
    """Parts that only releases from 0.20 on write; those count computed prompt tokens alone."""
    return bool(device and device != "GPU") or "Deferred: " in text or "KV fetch: " in text


def _sglang(text: str, ranks: dict[str, int]) -> EngineSample:
    values: dict[str, float] = {}
    for signal, pattern in _SGLANG_FIELDS:
        if found := pattern.findall(text):
            # Hybrid models name several pools; the fullest one is the limit.
            values[signal] = max(map(float, found))
    new, cached = _NEW_TOKENS.search(text), _CACHED_TOKENS.search(text)
    if new and cached and (asked := int(new[1]) + int(cached[1])):
        values["prefix_cache_hit_ratio"] = int(cached[1]) / asked
    return EngineSample("log:sglang", str(ranks["DP"]) if "DP" in ranks else "", values)


def prompt_signal(sample: EngineSample, version: str | None) -> tuple[str, bool]:
    """The signal that "Avg prompt throughput" stands for, and whether that is certain.

    All prompt tokens up to 0.14, only computed ones from 0.16 on.
    """
    match = re.match(r"v?(\d+)\.(\d+)", version or "")
    release = (int(match[1]), int(match[2])) if match else None
    if sample.hints_computed or (release is not None and release >= (0, 16)):
        return "computed_prompt_tokens_per_second", True
    return "prompt_tokens_per_second", sample.hints_all or (release is not None and release <= (0, 14))
