"""rules/alerts/engine.yml: the engine and its queue."""

from __future__ import annotations

from tests.rules.cases.case import Case, Fires, Told, counter, gauge, silent
from tests.rules.cases.engines import ENGINES, SGLANG, UNDERSCORED, V0, V1, Dialect, recorded_of, written

__all__ = ["CASES"]

_STALLED = Told(
    "LLMEngineStalled", "critical", "engine", "An engine holds requests and makes no tokens.",
    "standstill", "engine", ("instance",),
)  # fmt: skip
_STANDSTILL = Told(
    "LLMQueueStandstill",
    "warning",
    "queue",
    "Requests wait and none is admitted.",
    "standstill",
    "engine",
    ("instance",),
)
_RESTARTS = Told(
    "LLMEngineRestartLoop", "critical", "engine", "An engine restarts again and again.",
    "engine_restart", "engine", ("instance",),
)  # fmt: skip
_GROWING = Told(
    "LLMQueueGrowing", "warning", "queue", "The queue in front of an engine is long and does not drain.",
    "queue_growing", "engine", ("instance",),
)  # fmt: skip
_BLOCKING = Told(
    "LLMHeadOfLineBlocking", "warning", "queue", "A few giant prompts hold up the short ones.",
    "head_of_line_blocking", "engine", ("instance",),
)  # fmt: skip
_HOTSPOT = Told(
    "LLMRoutingHotspot", "warning", "queue", "Requests queue at one replica while another has room.",
    "routing_hotspot", "engine", ("job", "model_name"),
)  # fmt: skip
_LENGTHS = Told(
    "LLMPromptLengthGrowing", "warning", "engine", "Prompts are much longer than they were the day before.",
    "context_growth", "sessions", ("instance",), "1d",
)  # fmt: skip
_CONFIG = Told(
    "LLMEngineConfigChanged", "info", "engine", "An engine came back with another cache configuration.",
    "config_change", "engine", ("instance",),
)  # fmt: skip


def _at_work(
    engine: Dialect,
    running: str,
    generated: str,
    prompted: str,
    steps: str | None = None,
    waiting: str = "0x200",
) -> dict[str, str]:
    series = {
        engine.series(engine.running): running,
        engine.series(engine.waiting): waiting,
        engine.series("generation_tokens_total"): generated,
        engine.series("prompt_tokens_total"): prompted,
    }
    if steps is not None:
        series[engine.series("iteration_tokens_total_count")] = steps
    return series


_FLOWS, _STOPS = counter((200, 600)), counter((60, 600), (30, 0), (60, 600))


def _stalled(engine: Dialect, running: int, steps: str | None) -> Case:
    text = f"a:8000 has {running} requests in its batch and made no token for five minutes. Its health check may still be good."
    return Case(
        _STALLED,
        engine.name,
        _at_work(engine, gauge((150, running)), _STOPS, _STOPS, steps),
        silent=(59, 64, 66, 91, 120),
        fires={67: [Fires(recorded_of(engine), text)], 90: [Fires(recorded_of(engine), text)]},
    )


_STALLS = (
    _stalled(V1, 4, _STOPS),
    _stalled(V0, 1, None),
    _stalled(UNDERSCORED, 4, _STOPS),
    _stalled(SGLANG, 1, None),
    silent(
        _STALLED,
        "a long prefill",
        _at_work(V1, gauge((150, 1)), _STOPS, _STOPS, counter((200, 30))),
        67,
        80,
        90,
    ),
    silent(
        _STALLED, "prompts are taken in", _at_work(V1, gauge((150, 4)), _STOPS, _FLOWS, _STOPS), 67, 80, 90
    ),
    silent(
        _STALLED,
        "long answers, no new prompt",
        _at_work(V1, gauge((150, 4)), _FLOWS, _STOPS, _STOPS),
        67,
        80,
        90,
    ),
    silent(_STALLED, "idle", _at_work(V1, gauge((150, 0)), _STOPS, _STOPS, _STOPS), 67, 80, 90),
)


def _nobody_admitted(engine: Dialect) -> Case:
    text = (
        "1 requests wait at a:8000, and nothing ran for five minutes: the first in line may need more cache than "
        "there is, or wait for a transfer that never comes."
    )
    return Case(
        _STANDSTILL,
        engine.name,
        _at_work(
            engine, gauge((60, 2), (30, 0), (60, 2)), _STOPS, _STOPS, waiting=gauge((60, 0), (30, 1), (60, 0))
        ),
        silent=(59, 69, 90, 120),
        fires={70: [Fires(recorded_of(engine), text)], 89: [Fires(recorded_of(engine), text)]},
    )


_WAITS, _IDLES = gauge((60, 0), (30, 3), (60, 0)), gauge((60, 2), (30, 0), (60, 2))
_STANDSTILLS = (
    *map(_nobody_admitted, ENGINES),
    silent(_STANDSTILL, "others run", _at_work(V1, gauge((150, 2)), _STOPS, _STOPS, waiting=_WAITS), 70, 85),
    silent(
        _STANDSTILL,
        "tokens flow, the gauge is frozen",
        _at_work(V1, _IDLES, _FLOWS, _FLOWS, waiting=_WAITS),
        70,
        85,
    ),
    silent(_STANDSTILL, "idle", _at_work(V1, _IDLES, _STOPS, _STOPS), 70, 85),
)

_LOOP = Fires({"instance": "a:8000", "job": "vllm"}, "a:8000 restarted 3 times within half an hour.")
_LOOP_SGLANG = Fires({"instance": "a:8000", "job": "sglang"}, "a:8000 restarted 3 times within half an hour.")
# Starts at minutes 60, 66 and 72; the first leaves the half hour at 90, and the alert is kept for 15 minutes.
_STARTS = gauge((60, 100), (6, 3700), (6, 4060), (60, 4420))
_RESETS = "0+100x59 0+100x5 0+100x5 0+100x59"
_LOOPS = (
    Case(
        _RESTARTS,
        "start times",
        {
            'process_start_time_seconds{instance="a:8000",job="vllm"}': _STARTS,
            V1.series("num_requests_running"): gauge((140, 1)),
        },
        silent=(59, 71, 105, 120),
        fires={72: [_LOOP], 104: [_LOOP]},
    ),
    *(
        Case(
            _RESTARTS,
            f"counters that begin anew, {engine.name}",
            {engine.series("prompt_tokens_total"): _RESETS},
            silent=(59, 71, 105, 120),
            fires={72: [_LOOP_SGLANG if engine is SGLANG else _LOOP]},
        )
        for engine in ENGINES
    ),
    Case(
        _RESTARTS,
        "counters that begin anew, sglang_ spelling",
        {SGLANG.series("prompt_tokens_total").replace("sglang:", "sglang_"): _RESETS},
        silent=(71,),
        fires={72: [_LOOP_SGLANG]},
    ),
)


def _grown(engine: Dialect, requests: str) -> Fires:
    return Fires(
        recorded_of(engine),
        f"At least {requests} requests waited at a:8000 for the last five minutes; the queue grows, or is longer than the "
        "batch.",
    )


def _growing(engine: Dialect) -> Case:
    """Two more a minute from 60 on: the mean of five minutes at 60 + k is 2 (k - 2.5), its least over five
    minutes 2 (k - 7.5): above 10 at 73. From 100 on the queue drains."""
    return Case(
        _GROWING,
        engine.name,
        {
            engine.series(engine.waiting): "0x59 0+2x39 80-2x30",
            engine.series(engine.running): gauge((140, 100)),
        },
        silent=(60, 77, 115),
        fires={78: [_grown(engine, "21")]},
    )


_QUEUES = (
    *map(_growing, ENGINES),
    Case(
        _GROWING,
        "long, steady, longer than the batch",
        {V1.series("num_requests_waiting"): gauge((60, 0), (60, 20)), V1.series("num_requests_running"): gauge((120, 16))},
        silent=(60, 72),
        fires={73: [_grown(V1, "20")], 110: [_grown(V1, "20")]},
    ),
    silent(
        _GROWING, "long, steady, shorter than the batch",
        {V1.series("num_requests_waiting"): gauge((120, 20)), V1.series("num_requests_running"): gauge((120, 100))}, 60, 110,
    ),
)  # fmt: skip


def _histogram(engine: Dialect, metric: str, *buckets: tuple[str, float, float]) -> dict[str, str]:
    """Bound, then what share lies below it before minute 20 and after 60, and in between; ten a minute."""
    return {
        engine.series(f"{metric}_bucket", le=bound): counter(
            (20, 10 * calm), (40, 10 * hurt), (30, 10 * calm)
        )
        for bound, calm, hurt in (*buckets, ("+Inf", 1.0, 1.0))
    }


def _giants(
    engine: Dialect,
    *,
    first: tuple[float, float, float] = (0.0, 0.5, 0.9),
    late: tuple[str, str] = ("2.5", "5.0"),
    usual: tuple[str, str] = ("1000.0", "2000.0"),
    kv: float = 0.5,
) -> dict[str, str]:
    """One prompt in ten is of 10,000 to 20,000 tokens, and one first token in ten comes in ``late`` seconds.

    ``first``: shares of first tokens below 0.25, 0.5 and 1 s; with the default p50 is 0.5 s and p95, the middle of
    ``late``, 3.75 s. p99 of lengths is 19,000; p50 lies in ``usual``, five ninths up."""
    prompts = "prompt_tokens_histogram" if engine is SGLANG else "request_prompt_tokens"
    bounds = zip(("0.25", "0.5", "1.0"), first, strict=True)
    return {
        **_histogram(
            engine, "time_to_first_token_seconds",
            *((bound, 1.0, share) for bound, share in bounds), (late[0], 1.0, 0.9), (late[1], 1.0, 1.0),
        ),
        **_histogram(
            engine, prompts,
            (usual[0], 1.0, 0.0), (usual[1], 1.0, 0.9), ("10000.0", 1.0, 0.9), ("20000.0", 1.0, 1.0),
        ),
        engine.series(engine.kv_usage): gauge((90, kv)),
    }  # fmt: skip


def _blocking(engine: Dialect) -> Case:
    text = (
        "At a:8000 the slowest twentieth waits 3.75s for the first token, more than five times the median; so differ "
        "the prompts' lengths, and the cache has room."
    )
    # A tenth is slow, which the 95th percentile shows once three of five minutes are, at 23.
    return Case(
        _BLOCKING,
        engine.name,
        _giants(engine),
        silent=(19, 32, 63),
        fires={33: [Fires(recorded_of(engine), text)], 60: [Fires(recorded_of(engine), text)]},
    )


_BLOCKED = (
    *map(_blocking, ENGINES),
    silent(_BLOCKING, "a tail of 1.6 s", _giants(V1, first=(0.5, 0.9, 0.9), late=("1.0", "2.2")), 32, 55),
    silent(_BLOCKING, "a tail of four medians", _giants(V1, first=(0.0, 0.0, 0.5)), 40, 55),
    silent(_BLOCKING, "lengths of one kind", _giants(V1, usual=("2000.0", "5000.0")), 40, 55),
    silent(_BLOCKING, "a full cache", _giants(V1, kv=0.8), 32, 55),
)


def _replicas(engine: Dialect, other: str) -> dict[str, str]:
    return {
        engine.series(engine.waiting, "a:8000"): gauge((60, 0), (60, 16), (60, 0)),
        engine.series(engine.waiting, "b:8000"): other,
    }


def _hotspot(engine: Dialect) -> Case:
    text = f"16 requests of m wait at one replica of {engine.job}, none at another: the router sends too much to one."
    # The mean of five minutes passes 10 with the fourth of six samples, at 63.
    return Case(
        _HOTSPOT,
        engine.name,
        _replicas(engine, "0 1 " * 90),
        silent=(60, 72, 122, 150),
        fires={73: [Fires({"job": engine.job, "model_name": "m"}, text)]},
    )


_HOTSPOTS = (
    *map(_hotspot, ENGINES),
    silent(_HOTSPOT, "the other has a queue of its own", _replicas(V1, "1 2 " * 90), 73, 110),
    silent(
        _HOTSPOT, "one replica alone", {V1.series("num_requests_waiting"): gauge((60, 0), (60, 16))}, 73, 110
    ),
)


def _prompts(engine: Dialect, usual: float, grown: float, finished: float) -> dict[str, str]:
    """Tokens a prompt before minute 100 and from then to 140; nobody asks from 20 to 30."""
    metric = "prompt_tokens_histogram" if engine is SGLANG else "request_prompt_tokens"
    done = "num_requests_total" if engine is SGLANG else "request_success_total"
    rates = ((20, 1.0), (10, 0.0), (70, 1.0), (40, 1.0), (10, 1.0))
    lengths = (usual, usual, usual, grown, usual)
    tokens = [(minutes, 2 * rate * length) for (minutes, rate), length in zip(rates, lengths, strict=True)]
    return {
        engine.series(f"{metric}_count"): counter(*((minutes, 2 * rate) for minutes, rate in rates)),
        engine.series(f"{metric}_sum"): counter(*tokens),
        engine.series(done): counter(*((minutes, finished * rate) for minutes, rate in rates)),
    }


def _longer(engine: Dialect) -> Case:
    text = (
        "Prompts at a:8000 have 3k tokens on average, more than twice what they had over the day before: histories grow, "
        "or a client changed."
    )
    # 900 + 2100 · 3/5 passes 2,000 at 103.
    return Case(
        _LENGTHS,
        engine.name,
        _prompts(engine, 900, 3000, 2),
        silent=(90, 100, 122, 143),
        fires={123: [Fires(recorded_of(engine), text)]},
    )


_LONGER = (
    *map(_longer, ENGINES),
    silent(_LENGTHS, "still short", _prompts(V1, 700, 1500, 2), 123, 138),
    silent(_LENGTHS, "half again as long", _prompts(V1, 2000, 3000, 2), 123, 138),
    silent(_LENGTHS, "hardly any traffic", _prompts(V1, 900, 3000, 1), 123, 138),
)


def _config(name: str, blocks: str, **more: str) -> str:
    return written(
        name, {"instance": "a:8000", "job": "vllm", "engine": "0", "num_gpu_blocks": blocks, **more}
    )


def _reconfigured(name: str) -> Case:
    found = Fires(
        {"instance": "a:8000", "job": "vllm"},
        "a:8000 runs with another cache configuration than half an hour ago.",
    )
    return Case(
        _CONFIG,
        name,
        {_config(name, "8800"): gauge((60, 1)), _config(name, "66"): "_x60 " + gauge((60, 1))},
        silent=(40, 59, 90, 110),
        fires={60: [found], 89: [found]},
    )


_CONFIGS = (
    *map(_reconfigured, ("vllm:cache_config_info", "vllm_cache_config_info")),
    silent(
        _CONFIG, "a new engine", {_config("vllm:cache_config_info", "66"): "_x60 " + gauge((60, 1))}, 61, 80
    ),
)

CASES = (*_STALLS, *_STANDSTILLS, *_LOOPS, *_QUEUES, *_BLOCKED, *_HOTSPOTS, *_LONGER, *_CONFIGS)
"""Every case of this file."""
