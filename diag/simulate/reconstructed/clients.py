"""Family J: clients, gateways, probes - the time that is lost outside the engine."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.parts import Bundle
from diag.simulate.profiles import spells, step
from diag.simulate.reconstructed.case import Label, Reconstructed
from diag.simulate.reconstructed.engine_pages import Page
from diag.simulate.reconstructed.flow import Ask, flow
from diag.simulate.reconstructed.lines import vllm_line
from diag.simulate.reconstructed.service import calm, machine, points, serve, started
from diag.simulate.reconstructed.stage import Stage

__all__ = ["CLIENTS"]

_FAMILY = "J client-proxy"


def _orphans() -> Bundle:
    stage = Stage()
    waves = (1260.0, 1480.0, 1700.0, 1920.0, 2140.0)
    asks = tuple(
        Ask(at + 0.05 * n, 900, 4_000 + 500 * n, queue_seconds=0.0, tenant="curl", leaves_after_seconds=10.0)
        for at in waves
        for n in range(8)
    )
    tokens = points(
        *(
            pair
            for at in waves
            for pair in ((at, 0.022), (at, 0.034), (at + 210.0, 0.034), (at + 210.0, 0.022))
        )
    )
    made = serve(stage, calm(requests_per_second=0.08, token_seconds=tokens, abort_frees=False, asks=asks))
    machine(stage, made)
    return stage.bundle()


def _sixty_seconds() -> Bundle:
    stage = Stage()
    onset = 1200.0
    long = tuple(Ask(onset + 35.0 * n, 120_000, 300, tenant="batch") for n in range(32))
    traffic = calm(
        prefill_tokens_per_second=1_500.0, prompt_tokens=600.0, pool_tokens=4e6, patience_seconds=60.0
    )
    asks = tuple(replace(ask, leaves_after_seconds=60.0) for ask in long)
    made = flow(replace(traffic, asks=asks), stage.seconds)
    stage.record(made, "gateway:443")
    for row, record in enumerate(stage.requests):
        duration = record.get("duration_seconds")
        if record.get("status") == "aborted":
            stage.requests[row] = {
                **record,
                "status": "error",
                "http_status": 504,
                "upstream_response_seconds": 60.0,
                "upstream_connect_seconds": 0.001,
            }
        elif duration is not None:
            stage.requests[row] = {
                **record,
                "http_status": 200,
                "upstream_response_seconds": round(duration - 0.01, 3),
                "upstream_connect_seconds": 0.001,
            }
    return stage.bundle()


def _impatient_probe() -> Bundle:
    stage = Stage(seconds=3600.0, step_seconds=20.0)
    change = 1260.0
    made = serve(stage, calm(down=((change, 1e9),), requests_per_second=0.25))
    machine(stage, made)
    age = 300.0
    for n in range(7):
        at = change + 20.0 + (age + 15.0) * n
        started(stage, "vllm", {"model": "large-model"}, at=at)
        stage.say(
            "vllm",
            at + age,
            vllm_line(
                stage, at + age, "KeyboardInterrupt: terminated", level="ERROR", source="launcher.py:99"
            ),
        )
    stage.event(change, "deploy", "vllm", "a larger model; liveness initialDelaySeconds 300, no startupProbe")
    return stage.bundle()


def _pool_of_hundred() -> Bundle:
    stage = Stage(seconds=3600.0, step_seconds=20.0)
    onset = 1800.0
    rate = points((0.0, 0.3), (onset - 300.0, 0.3), (onset - 200.0, 0.58), (3600.0, 0.58))
    traffic = calm(
        requests_per_second=rate,
        output_tokens=2_000.0,
        token_seconds=0.1,
        connections=100,
        pool_tokens=1_000_000.0,
        spread=0.15,
    )
    made = serve(stage, traffic)
    machine(stage, made)
    started(stage, "vllm", {"max_num_seqs": 1024})
    return stage.bundle()


def _own_queue() -> Bundle:
    stage = Stage()
    onset = 1290.0
    quiet = tuple(Ask(15.5 * n, 300, 25, queue_seconds=0.0) for n in range(-30, int(onset / 15.5)))
    # Eight at 10 a second, one at a time, half a second each: 0.5 s for the first, 3.3 s for the last.
    busy = tuple(
        Ask(onset + 31.0 * run + 0.1 * n, 300, 25, queue_seconds=0.0) for run in range(35) for n in range(8)
    )
    traffic = calm(
        requests_per_second=0.0, token_seconds=0.01894, spread=0.0, connections=1, asks=(*quiet, *busy)
    )
    made = serve(stage, traffic)
    machine(stage, made)
    return stage.bundle()


def _false_503() -> Bundle:
    stage = Stage()
    onset = 1380.0
    ejected = tuple((onset + 120.0 * n, onset + 120.0 * n + 40.0) for n in range(8))
    used = points((0.0, 0.55), (onset - 240.0, 0.6), (onset, 0.97), (2400.0, 0.99))
    traffic = calm(
        requests_per_second=0.4, output_tokens=600.0, prompt_tokens=2_500.0, pool_tokens=30_000.0,
        queue_seconds=points((onset, 0.01), (onset + 120.0, 4.0), (2400.0, 6.0)), token_seconds=points((onset, 0.022), (onset + 60.0, 0.034), (2400.0, 0.036)),
    )  # fmt: skip
    page = Page(
        gauges={"kv": used}, counters={"sglang:num_retracted_requests_total": ({}, step(onset, 0.0, 0.25))},
        more={"sglang:num_retracted_reqs": ({}, spells(ejected, 0.0, 2.0))},
    )  # fmt: skip
    made = serve(stage, traffic, page, engine="sglang")
    machine(stage, made)
    for row, record in enumerate(stage.requests):
        at = record["ts"] - stage.start
        if any(begin <= at < end for begin, end in ejected):
            held = {
                name: value
                for name, value in record.items()
                if name not in ("ttft_seconds", "output_tokens", "cached_tokens")
            }
            stage.requests[row] = {
                **held,
                "status": "error",
                "duration_seconds": 0.02,
                "error": "no available engines",
            }
    return stage.bundle()


CLIENTS = (
    Reconstructed(
        "CLI-NOABORT-3164", _FAMILY, "maximhq/bifrost#3164", "maintainer-confirmed",
        "8 requests cancelled after 10 s; the engine keeps all 8 running for 2 to 4 minutes.",
        "five such waves from 1,260 s on, 22 to 34 ms a token meanwhile, light traffic, GPU, host.",
        Label("abandoned_requests", "the gateway does not cancel upstream", must_not=("engine_stall",), onset_seconds=1260.0),
        _orphans,
    ),
    Reconstructed(
        "CLI-PROXY60-206", _FAMILY, "preloop/preloop#206", "reporter-confirmed",
        "504 exactly at 60 s, only for calls whose first byte takes longer; others pass.",
        "calls of 120,000 tokens (80 s of prefill) from 1,200 s on among short ones; the gateway's records only.",
        Label("proxy_limit", "a round time-out of the proxy", must_not=("engine_restart", "engine_stall"), onset_seconds=1200.0),
        _sixty_seconds,
    ),
    Reconstructed(
        "CLI-PROBES-5062", _FAMILY, "kserve/kserve#5062", "maintainer-confirmed",
        "initialDelaySeconds 300 and loads up to 600 s; KeyboardInterrupt: terminated; only large models.",
        "the deploy of the larger model at 1,260 s, seven starts killed at the same age, the traffic before.",
        Label("engine_restart", "killed at a constant age while it loads", accept=("config_change",),
              must_not=("gpu_hardware_fault", "host_memory_leak"), onset_seconds=1260.0),
        _impatient_probe,
    ),
    Reconstructed(
        "CLI-AIOHTTP-2324", _FAMILY, "gpustack/gpustack#2324", "maintainer-confirmed",
        "the proxy's connector has a limit of 100; the engine has room (768 at once, 4,718 tokens/s directly) and waits for nobody.",
        "60 at once before 1,500 s, 100 after 1,800 s; the requests queue first come, first served before the engine; GPU, host.",
        Label("proxy_limit", "requests queue in the proxy, pinned at 100", must_not=("sequence_limit",), onset_seconds=1800.0),
        _pool_of_hundred,
    ),
    Reconstructed(
        "CLI-BENCHQUEUE-54101", _FAMILY, "vllm-project/vllm#54101", "reporter-confirmed",
        "500 ms of service, 10 requests a second, one at a time: 506 ms reported, 1,932 ms from schedule, p99 507 and 3,330.",
        "runs of eight every 31 s from 1,290 s on (that gives the posted means), single requests before; records from schedule.",
        Label("client_limit", "the generator's own queue is what users would feel", accept=("proxy_limit",), onset_seconds=1290.0),
        _own_queue,
    ),
    Reconstructed(
        "CLI-HEALTH503-33118", _FAMILY, "sgl-project/sglang#33118", "maintainer-confirmed",
        "503 of the generating health probe while retracted requests wait; the router says: no available engines.",
        "KV 97 % from 1,380 s on, retractions, eight ejections of 40 s, traffic, GPU, host.",
        Label("kv_cache_exhaustion", "KV pressure is real, the probe's verdict is not", accept=("unknown",), must_not=("engine_restart", "engine_stall"),
              onset_seconds=1380.0),
        _false_503,
    ),
)  # fmt: skip
