"""rules/alerts/cache.yml: the KV pool and the prefix cache. Trouble lasts from minute 20 to 60."""

from __future__ import annotations

from tests.rules.cases.case import Case, Fires, Told, counter, gauge, silent
from tests.rules.cases.engines import ENGINES, SGLANG, UNDERSCORED, V0, V1, Dialect, recorded_of, written

__all__ = ["CASES"]

_FULL = Told(
    "LLMKVCacheSaturated", "warning", "cache", "The KV pool is full and requests wait for it.",
    "kv_cache_exhaustion", "cache", ("instance",),
)  # fmt: skip
_PREEMPTED = Told(
    "LLMPreemptionShareHigh", "warning", "cache", "Requests are preempted and computed again.",
    "kv_cache_exhaustion", "cache", ("instance",),
)  # fmt: skip
_HITS = Told(
    "LLMPrefixCacheHitCollapse", "warning", "cache", "The prefix cache hits far less than it used to.",
    "prefix_cache_broken", "cache", ("instance",), "6h",
)  # fmt: skip
_OFF = Told(
    "LLMPrefixCachingDisabled", "info", "cache", "Prefix caching is off while long prompts come in.",
    "prefix_cache_off", "cache", ("instance",),
)  # fmt: skip
_LEAK = Told(
    "LLMKVBlockLeak", "warning", "cache", "KV blocks stay taken while nothing runs.",
    "kv_block_leak", "cache", ("instance",), "6h",
)  # fmt: skip


def _pool(engine: Dialect, usage: str, waiting: str, running: str = "4x90") -> dict[str, str]:
    return {
        engine.series(engine.kv_usage): usage,
        engine.series(engine.waiting): waiting,
        engine.series(engine.running): running,
    }


_TAKEN, _QUEUED = gauge((20, 0.4), (40, 0.99), (30, 0.4)), gauge((20, 0), (40, 1), (30, 0))


def _full(engine: Dialect) -> Case:
    found = Fires(
        recorded_of(engine),
        "99% of the KV pool of a:8000 has been in use for five minutes, and requests wait. Full alone would be healthy.",
    )
    # Five minutes' least at 25, then five minutes more; five minutes' largest lets go at 65.
    return Case(
        _FULL,
        engine.name,
        _pool(engine, _TAKEN, _QUEUED),
        silent=(19, 29, 65, 85),
        fires={30: [found], 64: [found]},
    )


_NOW_AND_THEN = "0x19 " + "1 0x8 " * 5
_FULLS = (
    *map(_full, ENGINES),
    silent(_FULL, "full, and nobody waits", _pool(V1, _TAKEN, "0x90"), 30, 50),
    silent(_FULL, "full, and now and then one waits", _pool(V1, _TAKEN, _NOW_AND_THEN), 30, 40, 50, 60),
    silent(
        _FULL, "full for two minutes now and then",
        _pool(V1, "0.4x19 " + "0.99 0.99 0.4x17 " * 3, "1x90"), 25, 27, 31, 47, 50,
    ),
    silent(_FULL, "four fifths full", _pool(V1, gauge((20, 0.4), (40, 0.8)), _QUEUED), 30, 50),
)  # fmt: skip


def _preempts(engine: Dialect, preempted: float, finished: float) -> dict[str, str]:
    name = "num_retracted_requests_total" if engine is SGLANG else "num_preemptions_total"
    done = "num_requests_total" if engine is SGLANG else "request_success_total"
    ends = {} if engine is SGLANG else {"finished_reason": "stop"}
    series = {
        engine.series(name): counter((20, 0), (40, preempted), (30, 0)),
        engine.series(done, **ends): counter((90, finished * 0.8)),
    }
    other = {"finished_reason": "length"} if ends else {"other": "yes"}
    return {**series, engine.series(done, **other): counter((90, finished * 0.2))}


def _preempted(engine: Dialect) -> Case:
    # 1.5 a minute are 0.025 a second; of ten finished, 0.15. Five minutes pass both floors at 24.
    found = Fires(
        recorded_of(engine),
        "a:8000 preempts 0.15 requests for each one that it finishes; what was computed for them is lost, and their users "
        "wait twice.",
    )
    return Case(
        _PREEMPTED,
        engine.name,
        _preempts(engine, 1.5, 10),
        silent=(19, 28, 62),
        fires={29: [found], 60: [found]},
    )


_PREEMPTIONS = (
    *map(_preempted, ENGINES),
    silent(_PREEMPTED, "few in little traffic", _preempts(V1, 0.7, 3), 29, 55),
    silent(_PREEMPTED, "few in much traffic", _preempts(V1, 1.5, 20), 29, 55),
)


def _looked_up(engine: Dialect, usual: float, now: float, queries: float = 4000) -> dict[str, str]:
    """Share of tokens found until minute 100 and from then to 140; nobody asks from 20 to 30."""
    names = {
        "vLLM V0": ("gpu_prefix_cache_hits_total", "gpu_prefix_cache_queries_total"),
        "SGLang": ("cached_tokens_total", "prompt_tokens_total"),
    }
    hits, asked = names.get(engine.name, ("prefix_cache_hits_total", "prefix_cache_queries_total"))
    rates = ((20, queries), (10, 0.0), (70, queries), (40, queries), (10, queries))
    shares = (usual, usual, usual, now, usual)
    found = [(minutes, rate * share) for (minutes, rate), share in zip(rates, shares, strict=True)]
    return {engine.series(hits): counter(*found), engine.series(asked): counter(*rates)}


def _collapsed(engine: Dialect) -> Case:
    # 0.36 - 0.24 k / 5 falls below half of 0.36 at 104.
    found = Fires(
        recorded_of(engine),
        "12% of the prompt tokens at a:8000 come from the prefix cache, less than half of what it was over the day before.",
    )
    return Case(
        _HITS,
        engine.name,
        _looked_up(engine, 0.36, 0.12),
        silent=(90, 118, 142),
        fires={119: [found], 140: [found]},
    )


_COLLAPSES = (
    *map(_collapsed, ENGINES),
    silent(_HITS, "three quarters are left", _looked_up(V1, 0.8, 0.6), 119, 138),
    silent(_HITS, "there was little to lose", _looked_up(V1, 0.16, 0.04), 119, 138),
    silent(_HITS, "hardly any traffic", _looked_up(V1, 0.36, 0.12, 2000), 119, 138),
)


def _uncached(engine: Dialect, enabled: str, length: float, tokens: float = 4000) -> dict[str, str]:
    config = {"instance": "a:8000", "job": "vllm", "engine": "0", "enable_prefix_caching": enabled}
    return {
        written(engine.prefix + "cache_config_info", config): "1x90",
        engine.series("prompt_tokens_total"): counter((90, tokens)),
        engine.series("request_prompt_tokens_sum"): counter((20, 1500), (40, length), (30, 1500)),
        engine.series("request_prompt_tokens_count"): counter((90, 1)),
    }


def _disabled(engine: Dialect) -> Case:
    # 1500 + 1500 k / 5 passes 2000 at 22; half an hour later it fires.
    found = Fires(
        {"instance": "a:8000", "job": "vllm"},
        "a:8000 computes every prompt from its first token, and prompts are long. Where turns resend their history, that is "
        "most of the work.",
    )
    return Case(
        _OFF,
        engine.name,
        _uncached(engine, "False", 3000),
        silent=(19, 51, 64),
        fires={52: [found], 62: [found]},
    )


_DISABLED = (
    *map(_disabled, (V1, V0, UNDERSCORED)),
    silent(_OFF, "caching is on", _uncached(V1, "True", 3000), 52, 60),
    silent(_OFF, "old V0 says None", _uncached(V0, "None", 3000), 52, 60),
    silent(_OFF, "short prompts", _uncached(V1, "False", 1500), 52, 60),
    silent(_OFF, "hardly any traffic", _uncached(V1, "False", 3000, 2000), 52, 60),
)

_IDLE = gauge((20, 3), (40, 0), (30, 3))


def _leaking(engine: Dialect) -> Case:
    found = Fires(recorded_of(engine), "15% of the KV pool of a:8000 is held though nothing runs or waits.")
    return Case(
        _LEAK,
        engine.name,
        _pool(engine, gauge((20, 0.6), (70, 0.15)), "0x90", _IDLE),
        silent=(19, 39, 60, 85),
        fires={40: [found], 59: [found]},
    )


_LEAKS = (
    *map(_leaking, ENGINES),
    silent(_LEAK, "the pool is given back", _pool(V1, gauge((20, 0.6), (70, 0.07)), "0x90", _IDLE), 40, 59),
    silent(_LEAK, "requests wait", _pool(V1, gauge((20, 0.6), (70, 0.15)), "1x90", _IDLE), 40, 59),
    silent(_LEAK, "requests run", _pool(V1, gauge((20, 0.6), (70, 0.15)), "0x90"), 40, 59),
)

CASES = (*_FULLS, *_PREEMPTIONS, *_COLLAPSES, *_DISABLED, *_LEAKS)
"""Every case of this file."""
