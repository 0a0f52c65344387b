"""Family C: the prefix cache, broken or only read wrongly."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.parts import Bundle
from diag.simulate.profiles import Profile, constant, step
from diag.simulate.reconstructed.case import Label, Reconstructed
from diag.simulate.reconstructed.engine_pages import Page
from diag.simulate.reconstructed.flow import Ask, flow
from diag.simulate.reconstructed.lines import vllm_line
from diag.simulate.reconstructed.service import calm, machine, points, serve, started
from diag.simulate.reconstructed.stage import Stage

__all__ = ["PREFIX_CACHE"]

_FAMILY = "C prefix-cache"
_CACHE_ON = {"enable_prefix_caching": "True", "block_size": "16", "num_gpu_blocks": "25000"}


def _seed() -> Bundle:
    stage = Stage(step_seconds=20.0)
    up = 1260.0
    hashes = {
        "gpu-0": r"b'\xfb\x84\xb52N{O\xaa]\xb6\x9aoI\xd7\xc7j'",
        "gpu-1": r"b'\x1c\x07\x9e\x11\xd0\xaf\x8bM\x85\x02\xbb\x9f\xc4\x13y!'",
    }
    for number, name in enumerate(("gpu-0", "gpu-1")):
        second = number == 1
        traffic = calm(
            prompt_tokens=9_000.0, requests_per_second=0.3, prefill_tokens_per_second=5_000.0, seed=number + 1,
            cached_ratio=step(up, 0.82, 0.2) if second else 0.82,
        )  # fmt: skip
        stored: dict[str, tuple[dict[str, str], Profile]] = {
            "vllm:external_prefix_cache_queries_total": ({}, constant(700.0)),
            "vllm:external_prefix_cache_hits_total": (
                {},
                step(up, 420.0, 0.0) if second else constant(420.0),
            ),
        }
        serve(
            stage,
            traffic,
            Page(host=f"{name}:8000", counters=stored, config=_CACHE_ON, resets=(up,) if second else ()),
            turns=10,
        )
        at = up - 40.0 if second else -7200.0
        for offset, text in enumerate((
            "LMCache WARNING: Using builtin hash without PYTHONHASHSEED set. For production environments (non-testing "
            "scenarios), you MUST set PYTHONHASHSEED to ensure consistent hashingacross processes. Example: export PYTHONHASHSEED=0",
            f"LMCache INFO: Initialized NONE_HASH={hashes[name]} from vLLM (>= PR#20511)",
            "LMCache INFO: Using hash algorithm: builtin",
        )):  # fmt: skip
            stage.say(name, at + offset, vllm_line(stage, at + offset, text, source="token_database.py:88"))
    for at in (1300.0, 1500.0, 1800.0, 2100.0):
        stage.say(
            "gpu-1",
            at,
            vllm_line(stage, at, "LMCache INFO: Total tokens 8891, LMCache hit tokens: 0, need to load: 0"),
        )
    return stage.bundle()


def _align() -> Bundle:
    stage = Stage()
    traffic = calm(
        requests_per_second=step(1200.0, 0.08, 0.3), prompt_tokens=6_000.0, output_tokens=400.0, token_seconds=0.02,
        cached_ratio=step(1200.0, 0.0, 0.06), spread=0.02,
    )  # fmt: skip
    made = serve(stage, traffic, Page(config=_CACHE_ON), turns=50)
    machine(stage, made)
    started(stage, "vllm", {"enable_prefix_caching": True, "max_num_batched_tokens": 8192})
    return stage.bundle()


def _granularity() -> Bundle:
    stage = Stage()
    short = calm(
        prompt_tokens=2_048.0, spread=0.0, cached_ratio=0.0, requests_per_second=0.25, tenants=("short",)
    )
    long = calm(
        prompt_tokens=6_100.0,
        spread=0.0,
        cached_ratio=4096 / 6100,
        requests_per_second=0.1,
        tenants=("long",),
        seed=2,
    )
    mixed = flow(short, stage.seconds)
    stage.record(mixed, "npu-0:8000", turns=12)
    stage.record(flow(long, stage.seconds), "npu-0:8000", turns=12)
    return stage.bundle()


def _window() -> Bundle:
    stage = Stage(seconds=900.0, step_seconds=5.0)
    rounds = (250.0, 450.0, 650.0)
    asks = tuple(Ask(at + 0.05 * n, 12_500, 300, queue_seconds=0.01) for at in rounds for n in range(5))
    cached = points((400.0, 0.0), (400.0, 0.997))
    traffic = calm(requests_per_second=0.0, prefill_tokens_per_second=9_000.0, cached_ratio=cached, asks=asks)
    serve(stage, traffic, Page(config=_CACHE_ON))
    text = (
        "Engine 000: Avg prompt throughput: 6250.0 tokens/s, Avg generation throughput: 150.0 tokens/s, Running: 5 reqs, "
        "Waiting: 0 reqs, GPU KV cache usage: 16.0%, Prefix cache hit rate: 21.3%"
    )
    stage.say("vllm", 660.0, vllm_line(stage, 660.0, text))
    return stage.bundle()


def _hot_prefix() -> Bundle:
    stage = Stage(step_seconds=40.0)
    onset = 1200.0
    hot = calm(
        requests_per_second=step(onset, 0.3, 0.75), prompt_tokens=5_000.0, cached_ratio=step(onset, 0.55, 0.9),
        queue_seconds=points((onset, 0.01), (onset + 180.0, 7.0), (2400.0, 9.0)), token_seconds=step(onset, 0.022, 0.03),
    )  # fmt: skip
    idle = calm(
        requests_per_second=step(onset, 0.3, 0.075),
        prompt_tokens=5_000.0,
        cached_ratio=step(onset, 0.55, 0.3),
    )
    for number in range(3):
        traffic = hot if number == 0 else replace(idle, seed=number + 2)
        serve(stage, traffic, Page(host=f"gpu-{number}:8000", config=_CACHE_ON), turns=5)
    return stage.bundle()


def _timestamp() -> Bundle:
    stage = Stage(seconds=7_090.0, step_seconds=30.0)
    onset = 4_200.0
    # 2.2 s with a hit and 8.0 s without on about 17,000 tokens: 2,125 tokens a second, 12,300 of them cached.
    traffic = calm(
        requests_per_second=0.1, prompt_tokens=17_000.0, output_tokens=200.0, prefill_tokens_per_second=2_125.0, spread=0.03,
        cached_ratio=step(onset, 12_300 / 17_000, 32 / 17_000), tenants=("agent",),
    )  # fmt: skip
    made = serve(stage, traffic, Page(config=_CACHE_ON), turns=15)
    machine(stage, made)
    stage.event(onset, "deploy", "agent", "agent updated (engine untouched)")
    return stage.bundle()


def _tool_order() -> Bundle:
    stage = Stage()
    onset = 1320.0
    traffic = calm(
        requests_per_second=0.15, prompt_tokens=2_350.0, spread=0.05, output_tokens=80.0, cached_ratio=step(onset, 0.93, 0.0),
        prefill_tokens_per_second=step(onset, 2_000.0, 1_600.0), tenants=("home-agent",),
    )  # fmt: skip
    asks = (Ask(1500.0, 2507, 25), Ask(1520.0, 2195, 130))
    stage.record(flow(replace(traffic, asks=asks), stage.seconds), "provider", turns=8)
    return stage.bundle()


PREFIX_CACHE = (
    Reconstructed(
        "PFX-SEED-1139", _FAMILY, "LMCache/LMCache#1139", "maintainer-confirmed",
        "the log lines on PYTHONHASHSEED and NONE_HASH (another one in each process); LMCache hit tokens: 0 for what the other "
        "instance stored; stores succeed.",
        "two instances, the second drained and started anew by 1,260 s; lengths, local hits (82 %, then 20 %), external counters.",
        Label("prefix_cache_broken", "hashes differ between processes: on, but the shared part never hits",
              accept=("prefix_cache_scattered",), must_not=("prefix_cache_off", "kv_transfer_failure", "kv_cache_exhaustion"),
              onset_seconds=1260.0, scope={"instance": ("gpu-1:8000",)}),
        _seed,
    ),
    Reconstructed(
        "PFX-ALIGN-42317", _FAMILY, "vllm-project/vllm#42317", "maintainer-confirmed",
        "hits exactly 0 % at concurrency 1, above 0 when it is raised; prefix caching on; budget of 8192 tokens a step.",
        "rates, lengths, 6 % hits later; nobody is slower than before.",
        Label(None, "a granularity of the hybrid model's cache, there from the start: nothing went wrong at a moment",
              accept=("prefix_cache_broken", "unknown"), must_not=("prefix_cache_off", "prefix_cache_scattered")),
        _align,
    ),
    Reconstructed(
        "PFX-LCM-16270", _FAMILY, "vllm-project/vllm-ascend#16270", "reporter-confirmed",
        "no hits for prompts below 4,096 tokens, hits above; a prompt of 2,048 rounds down to 0.",
        "clients' records of two kinds of prompts (2,048 and 6,100 tokens) at a constant rate.",
        Label(None, "cache alignment, always so: lengths below the granularity rule a broken prefix out",
              accept=("unknown",), must_not=("prefix_cache_broken", "prefix_cache_scattered", "prefix_cache_off")),
        _granularity,
    ),
    Reconstructed(
        "PFX-WINDOW-90", _FAMILY, "1CatAI/1Cat-vLLM#90", "likely",
        "the same 50,000-character prompts, 3 rounds of 5 at once, and a log line that says 21.3 %.",
        "when the rounds ran, 12,500 tokens a prompt; the counters hold the truth (0 in the first round, all later).",
        Label(None, "the log's figure is windowed and weighted; the cache works", accept=("unknown",),
              must_not=("prefix_cache_broken", "prefix_cache_off", "prefix_cache_scattered")),
        _window,
    ),
    Reconstructed(
        "PFX-HOTPREFIX-1035", _FAMILY, "vllm-project/production-stack#1035", "maintainer-confirmed",
        "cache-aware routing: one engine queues while its peers idle, the hit rate is good, the tail of TTFT is not.",
        "three engines, 0.9 requests a second, the shares before and after, waits of 7 to 9 s.",
        Label("routing_hotspot", "the first holder of a prefix always wins", must_not=("slow_gpu",), onset_seconds=1200.0,
              scope={"instance": ("gpu-0:8000",)}),
        _hot_prefix,
    ),
    Reconstructed(
        "PFX-TIMESTAMP-8687", _FAMILY, "NousResearch/hermes-agent#8687", "reporter-confirmed",
        "709 requests; 2.2 s with a hit, 8.0 s without for about 17,000 tokens; only a clock at the head differs.",
        "an agent update at 4,200 s puts the clock there; the engine's page, sessions of 15 turns, GPU, host.",
        Label("prefix_cache_broken", "the head of the prompt is not byte-stable",
              must_not=("kv_cache_exhaustion", "prefix_cache_scattered", "prefix_cache_off"), onset_seconds=4200.0),
        _timestamp,
    ),
    Reconstructed(
        "PFX-TOOLORDER-617", _FAMILY, "goruck/home-generative-agent#617", "maintainer-confirmed",
        "input 2,507 with 2,504 written and 0 read, then 2,195 with 2,192 written and 0 read, every turn.",
        "that the cache was read until 1,320 s; times to the first token of a hosted model; the other requests.",
        Label("prefix_cache_broken", "tools arrive in another order each turn", accept=("unknown",),
              must_not=("prefix_cache_off", "prefix_cache_scattered"), onset_seconds=1320.0),
        _tool_order,
    ),
)  # fmt: skip
