"""rules/alerts/llmdiag.yml: what only diag-exporter tells. Trouble lasts from minute 20 to 60."""

from __future__ import annotations

from tests.rules.cases.case import Case, Fires, Told, counter, gauge, silent
from tests.rules.cases.engines import SGLANG, UNDERSCORED, V0, V1, Dialect, recorded_of, written

__all__ = ["CASES"]

_HOST, _MODEL = {"instance": "host"}, {"model": "model"}
_NUMA = Told(
    "LLMEngineNumaMismatch", "info", "engine", "An engine may run only on CPUs far from its GPU.",
    "numa_misplacement", "gpu", ("instance", "gpu"), variables=_HOST,
)  # fmt: skip
_PORT = Told(
    "LLMEnginePortCollision", "warning", "engine", "An engine could not start: its port is taken.",
    "port_conflict", "engine", ("engine",), variables={"engine": "instance"},
)  # fmt: skip
_CONTEXT = Told(
    "LLMSessionContextNearLimit", "warning", "requests", "Conversations are about to reach the model's longest context.",
    "context_growth", "sessions", ("model",), "6h", variables=_MODEL,
)  # fmt: skip
_TENANT = Told(
    "LLMTenantDominance", "info", "requests", "One tenant uses most of the tokens while requests wait.",
    "tenant_dominance", "tenants", ("tenant",), variables={},
)  # fmt: skip
_ABORTS = Told(
    "LLMAbortWaste", "warning", "requests", "Many clients leave before their answer is complete.",
    "aborted_requests", "tenants", (), variables={},
)  # fmt: skip
_REUSE = Told(
    "LLMPrefixReuseMissed", "warning", "cache", "Prompts repeat what was sent before, and it is computed again.",
    "prefix_cache_off", "sessions", ("model",), "6h", variables=_MODEL,
)  # fmt: skip
_GAP = Told(
    "LLMClientGapHigh", "warning", "requests", "Time to first token is lost outside the engine.",
    "network_latency", "incident", ("model",), variables=_MODEL,
)  # fmt: skip
_LIMIT = Told(
    "LLMSequenceLimit", "warning", "queue", "An engine's batch is at its limit while the cache has room.",
    "sequence_limit", "engine", ("instance",),
)  # fmt: skip
_UNHEALTHY = Told(
    "LLMEngineUnhealthy", "critical", "engine", "An engine does not answer its health check well.",
    "target_down", "incident", ("engine",), variables={"engine": "instance"},
)  # fmt: skip
_LOST = Told(
    "GPULost",
    "critical",
    "gpu",
    "A GPU does not answer.",
    "gpu_hardware_fault",
    "gpu",
    ("instance", "gpu"),
    variables=_HOST,
)
_ABSENT = Told(
    "LLMExporterAbsent",
    "warning",
    "meta",
    "diag-exporter is not scraped, or hangs.",
    "blind_rules",
    "incident",
    (),
)

_TARGET = {"instance": "n:9877", "job": "llmdiag"}
_CARD = {**_TARGET, "gpu": "0", "uuid": "GPU-1"}
_OF_MODEL = {**_TARGET, "model": "m"}
_OF_ENGINE = {**_TARGET, "engine": "a:8000"}


def _seen(name: str, labels: dict[str, str] = _TARGET, **more: str) -> str:
    return written(f"llmdiag_{name}", {**labels, **more})


def _held(value: float, calm: float = 0.0) -> str:
    return gauge((20, calm), (40, value), (30, calm))


def _trouble(growth: float, calm: float = 0.0) -> str:
    return counter((20, calm), (40, growth), (30, calm))


def _contexts(*counts: tuple[str, float]) -> dict[str, str]:
    """Of a hundred sessions, how many fill up to that part of the context."""
    bounds = ("0.25", "0.5", "0.9", "0.95", "1.0", "+Inf")
    now = dict(counts)
    return {
        _seen("active_session_context_ratio_bucket", _OF_MODEL, le=le): _held(now.get(le, 100), 100)
        for le in bounds
    }


def _shares(most: float, *, tenants: int = 3, waiting: int = 1, other: float = 0.1) -> dict[str, str]:
    return {
        _seen("tenant_token_share_ratio", tenant="acme"): _held(most, 0.4),
        _seen("tenant_token_share_ratio", tenant="other"): gauge((90, other)),
        _seen("active_tenants"): gauge((90, tenants)),
        V1.series("num_requests_waiting"): gauge((90, waiting)),
    }


def _aborts(requests: float, share: float) -> dict[str, str]:
    return {
        _seen("requests_total", _OF_MODEL, status="ok"): _trouble(requests * (1 - share), requests),
        _seen("requests_total", _OF_MODEL, status="aborted"): _trouble(requests * share),
    }


def _reuse(headroom: float, tokens: float) -> dict[str, str]:
    return {
        _seen("prompt_reuse_headroom_ratio", _OF_MODEL): _held(headroom),
        _seen("cache_known_prompt_tokens_total", _OF_MODEL): counter((90, tokens)),
    }


def _gap(engine: Dialect, felt: float) -> dict[str, str]:
    """Ten requests a minute: what their callers waited from minute 20 to 60; the engine takes half a second.

    Another replica is idle, so its mean is NaN."""
    return {
        _seen("ttft_seconds_sum", _OF_MODEL, prompt_tokens="0-2k"): _trouble(10 * felt, 5),
        _seen("ttft_seconds_count", _OF_MODEL, prompt_tokens="0-2k"): counter((90, 10)),
        engine.series("time_to_first_token_seconds_sum"): counter((90, 5)),
        engine.series("time_to_first_token_seconds_count"): counter((90, 10)),
        engine.series("time_to_first_token_seconds_sum", "b:8000"): counter((90, 0)),
        engine.series("time_to_first_token_seconds_count", "b:8000"): counter((90, 0)),
    }


def _batch(engine: Dialect, *, waiting: int = 1, kv: float = 0.5) -> dict[str, str]:
    return {
        engine.series(engine.running): _held(16, 4),
        engine.series(engine.waiting): gauge((90, waiting)),
        engine.series(engine.kv_usage): gauge((90, kv)),
        _seen("engine_max_num_seqs", engine="a:8000"): gauge((90, 16)),
    }


_LOST_TEXT = "A GPU at n:9877 is lost, refuses until a reset, or has no driver."
_ABSENT_TEXT = (
    "No target of a job llmdiag or diag-exporter is there, or one of its sampling threads hangs: the alerts of this file "
    "are blind."
)
_ELSEWHERE = {'up{job="node",instance="n:9100"}': "1x90"}

CASES = (
    Case(
        _NUMA, "bound to the other side", {_seen("engine_numa_match", _CARD): _held(0, 1)}, silent=(19, 29, 60),
        fires={30: [Fires(
            _CARD,
            "The engine on GPU 0 at n:9877 is bound to CPUs of another NUMA node. Many such engines lose nothing: look for "
            "the effect first.",
        )]},
    ),
    Case(
        _PORT, "the address is in use", {_seen("engine_bind_failures_total", _OF_ENGINE): "0x19 1x60"}, silent=(19, 45),
        fires={
            20: [Fires(_OF_ENGINE, "a:8000 ended at its start since its address was in use.")],
            44: [Fires(_OF_ENGINE, "a:8000 ended at its start since its address was in use.")],
        },
    ),
    # The 99th of a hundred is the third of four between 0.95 and 1: 0.9875.
    Case(
        _CONTEXT, "one session in ten is nearly full", _contexts(("0.25", 0), ("0.5", 50), ("0.9", 90), ("0.95", 96)),
        silent=(19, 34, 60),
        fires={35: [Fires(
            _OF_MODEL,
            "The longest of the active sessions with m fill 98.75% of the context; the next turns are cut or refused, and "
            "each is slow.",
        )]},
    ),
    silent(_CONTEXT, "half full", _contexts(("0.25", 0)), 35, 55),
    Case(
        _TENANT, "seven tenths", _shares(0.7), silent=(19, 29, 60),
        fires={30: [Fires({**_TARGET, "tenant": "acme"}, "Tenant acme has 70% of all tokens, and others wait.")]},
    ),
    silent(_TENANT, "half", _shares(0.5), 30, 55),
    silent(_TENANT, "it is alone", _shares(0.7, tenants=1), 30, 55),
    silent(_TENANT, "nobody waits", _shares(0.7, waiting=0), 30, 55),
    silent(_TENANT, "many small ones together", _shares(0.2, other=0.8), 30, 55),
    # 22 % of two a minute; five minutes pass 15 % at 24.
    Case(
        _ABORTS, "every fifth", _aborts(2, 0.22), silent=(19, 33, 62),
        fires={34: [Fires({**_TARGET, "producer": "llmdiag"}, "22% of the requests seen by n:9877 were aborted.")]},
    ),
    silent(_ABORTS, "every tenth", _aborts(2, 0.1), 34, 55),
    silent(_ABORTS, "hardly any traffic", _aborts(1, 0.22), 34, 55),
    Case(
        _REUSE, "half of the prompt tokens", _reuse(0.45, 4000), silent=(19, 34, 60),
        fires={35: [Fires(
            _OF_MODEL, "45% of the prompt tokens to m were sent before in the same session and yet came from no cache."
        )]},
    ),
    silent(_REUSE, "a fifth", _reuse(0.2, 4000), 35, 55),
    silent(_REUSE, "hardly any traffic", _reuse(0.45, 2000), 35, 55),
    # 0.5 + 1.5 k / 5 less 0.5 passes a second at 24.
    *(
        Case(
            _GAP, engine.name, _gap(engine, 2.0), silent=(19, 33, 62),
            fires={34: [Fires(
                {"model": "m"},
                "Callers of m wait 1.5s longer for the first token than the engines took: network, gateway or client.",
            )]},
        )
        for engine in (V1, V0, UNDERSCORED, SGLANG)
    ),
    silent(_GAP, "seven tenths of a second", _gap(V1, 1.2), 34, 55),
    *(
        Case(
            _LIMIT, engine.name, _batch(engine), silent=(19, 34, 60),
            fires={35: [Fires(
                recorded_of(engine),
                "a:8000 runs 16 requests, as many as it may, and others wait, though the KV pool has room.",
            )]},
        )
        for engine in (V1, V0, UNDERSCORED, SGLANG)
    ),
    silent(_LIMIT, "nobody waits", _batch(V1, waiting=0), 35, 55),
    silent(_LIMIT, "the pool is full, too", _batch(V1, kv=0.8), 35, 55),
    Case(
        _UNHEALTHY, "health is not 200", {_seen("engine_up", _OF_ENGINE): _held(0, 1)}, silent=(19, 21, 60),
        fires={22: [Fires(_OF_ENGINE, "a:8000, asked by n:9877, does not answer /health well.")]},
    ),
    Case(
        _LOST, "a card does not answer", {_seen("gpu_up", _CARD): _held(0, 1)}, silent=(19, 21, 60),
        fires={22: [Fires(_CARD, _LOST_TEXT)]},
    ),
    Case(
        _LOST, "a card is gone", {_seen("gpu_expected"): "8x90", _seen("gpu_visible"): _held(7, 8)}, silent=(19, 21, 60),
        fires={22: [Fires(_TARGET, _LOST_TEXT)]},
    ),
    # The last scrape is seen for five minutes, until 24.
    Case(
        _ABSENT, "no target", {**_ELSEWHERE, written("up", _TARGET): "1x19 _x40 1x30"}, silent=(19, 34, 61),
        fires={35: [Fires({}, _ABSENT_TEXT)]},
    ),
    silent(_ABSENT, "by its other name", {**_ELSEWHERE, 'up{job="diag-exporter",instance="n:9877"}': "1x90"}, 35, 55),
    Case(
        _ABSENT, "a thread hangs", {written("up", _TARGET): "1x90", _seen("up"): _held(0, 1)}, silent=(19, 29, 60),
        fires={30: [Fires(_TARGET, _ABSENT_TEXT)]},
    ),
)  # fmt: skip
"""Every case of this file."""
