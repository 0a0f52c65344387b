"""Family A: the KV pool is too small for what was admitted."""

from __future__ import annotations

from diag.simulate.parts import Bundle
from diag.simulate.profiles import Profile, constant, spells, step
from diag.simulate.reconstructed.case import Label, Reconstructed
from diag.simulate.reconstructed.engine_pages import Page
from diag.simulate.reconstructed.flow import Ask, Traffic, flow
from diag.simulate.reconstructed.lines import status_lines, vllm_line
from diag.simulate.reconstructed.service import calm, course, machine, points, serve, started
from diag.simulate.reconstructed.stage import Stage

__all__ = ["KV_CAPACITY"]

_FAMILY = "A kv-capacity"


def _thrash() -> Bundle:
    stage = Stage(start=1_753_683_600.0)  # 2025-07-28 06:20:00
    cliff = 1485.0
    asks = tuple(Ask(-100.0 + 0.1 * n, 27_600, 90_000, queue_seconds=0.0) for n in range(8))
    traffic = Traffic(
        requests_per_second=constant(0.0),
        prompt_tokens=constant(1.0),
        output_tokens=constant(1.0),
        token_seconds=step(cliff, 1 / 30.0, 1 / 8.0),
        prefill_tokens_per_second=constant(7500.0),
        pool_tokens=600_000.0,
        asks=asks,
    )
    used = points((0.0, 0.408), (1259.0, 0.912), (1269.0, 0.916), (1279.0, 0.919), (1329.0, 0.939), (1359.0, 0.950),
                  (1379.0, 0.958), (cliff, 0.998), (1500.0, 0.90), (1600.0, 0.99), (1615.0, 0.91), (1740.0, 0.995),
                  (1755.0, 0.9), (1900.0, 0.99), (1915.0, 0.91), (2100.0, 0.995), (2115.0, 0.9), (2400.0, 0.99))  # fmt: skip
    gauges = {"running": step(cliff, 8.0, 6.0), "waiting": step(cliff, 0.0, 2.0), "kv": used}
    page = Page(gauges=gauges, preemptions_per_second=step(cliff, 0.0, 0.2))
    made = serve(stage, traffic, page, records=False)
    machine(stage, made)
    shown = {1259.0: (239.2, 91.2), 1269.0: (239.2, 91.6), 1279.0: (240.0, 91.9), 1329.0: (240.8, 93.9),
             1359.0: (240.8, 95.0), 1379.0: (240.0, 95.8)}  # fmt: skip
    posted = {at: _posted_line(stage, at, rate, kv) for at, (rate, kv) in shown.items()}
    status_lines(stage, made, "vllm", posted=posted, until=1390.0)
    return stage.bundle()


def _posted_line(stage: Stage, at: float, rate: float, used: float) -> str:
    text = (
        f"Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {rate} tokens/s, "
        f"Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: {used}%, Prefix cache hit rate: 0.0%"
    )
    return vllm_line(stage, at, text, source="loggers.py:118")


def _capacity() -> Bundle:
    stage = Stage(seconds=3600.0, step_seconds=20.0)
    alone = tuple(
        Ask(at, 560_000, 2_500, queue_seconds=0.1)
        for at in (-480.0, -200.0, 90.0, 380.0, 670.0, 960.0, 1250.0, 1540.0)
    )
    crowd = tuple(
        Ask(at + 5.0 * n, 640_000, 2_500, queue_seconds=(0.1, 0.1, 225.0)[n])
        for at in (1830.0, 2320.0, 2810.0, 3300.0)
        for n in range(3)
    )
    traffic = calm(
        requests_per_second=0.0,
        token_seconds=0.035,
        prefill_tokens_per_second=5_000.0,
        pool_tokens=1_526_178.0,
        asks=(*alone, *crowd),
    )
    waiting = course(stage.times, flow(traffic, stage.seconds).waiting(stage.times))
    page = Page(
        more={
            "vllm:num_requests_waiting_by_reason#c": ({"reason": "capacity"}, waiting),
            "vllm:num_requests_waiting_by_reason#d": ({"reason": "deferred"}, constant(0.0)),
        },
        config={
            "kv_cache_size_tokens": "1526178",
            "kv_cache_max_concurrency": "1.53",
            "enable_prefix_caching": "True",
        },
    )
    made = serve(stage, traffic, page)
    machine(stage, made)
    started(stage, "vllm", {"max_model_len": 1_000_000, "max_num_seqs": 4}, "GPU KV cache size: 1,526,178 tokens",
            "Maximum concurrency for 1,000,000 tokens per request: 1.53x")  # fmt: skip
    return stage.bundle()


def _policy() -> Bundle:
    stage = Stage(seconds=7200.0, step_seconds=30.0)
    change = 3900.0
    paused = ((change + begin, change + begin + 430.0) for begin in (150.0, 1800.0))
    tokens = spells(paused, 0.125, 1.1)
    tokens = Profile((0.0, change, *tokens.times[1:]), (0.1, 0.1, *tokens.values[1:]))
    long = calm(
        requests_per_second=step(change, 0.161, 0.0957), prompt_tokens=24_000.0, output_tokens=1_000.0, token_seconds=tokens,
        cached_ratio=0.0, spread=0.2, tenants=("long-context",),
    )  # fmt: skip
    short = calm(
        requests_per_second=0.12,
        prompt_tokens=800.0,
        output_tokens=200.0,
        token_seconds=0.03,
        tenants=("short-context",),
        seed=2,
    )
    for traffic, name in ((long, "trtllm-long:8000"), (short, "trtllm-short:8000")):
        stage.record(flow(traffic, stage.seconds), name)
    stage.event(
        change, "config", "trtllm-long", "capacity_scheduler_policy GUARANTEED_NO_EVICT -> MAX_UTILIZATION"
    )
    return stage.bundle()


def _swap() -> Bundle:
    stage = Stage(start=1_718_571_600.0)  # 2024-06-16 21:00:00
    onset = 1140.0
    swapping = points((onset, 0.0), (onset + 120.0, 60.0), (1455.0, 100.0), (1460.0, 137.0), (2400.0, 180.0))
    used = points((0.0, 0.62), (onset, 0.99), (1455.0, 0.992), (1460.0, 0.766), (1520.0, 0.992), (1530.0, 0.78), (1700.0, 0.99),
                  (1715.0, 0.77), (2000.0, 0.992), (2015.0, 0.76), (2400.0, 0.99))  # fmt: skip
    running = points(
        (0.0, 150.0), (onset, 150.0), (1440.0, 34.0), (1455.0, 34.0), (1460.0, 37.0), (2400.0, 36.0)
    )
    waiting = points((0.0, 9990.0), (1455.0, 9832.0), (1460.0, 9779.0), (2400.0, 9300.0))
    traffic = calm(
        requests_per_second=0.6, prompt_tokens=900.0, output_tokens=700.0, cached_ratio=0.0,
        token_seconds=points((0.0, 0.012), (onset, 0.012), (1440.0, 0.03), (2400.0, 0.034)), queue_seconds=900.0,
    )  # fmt: skip
    page = Page(
        old=True,
        gauges={"running": running, "waiting": waiting, "kv": used},
        preemptions_per_second=step(onset, 0.0, 0.48),
        more={
            "vllm:num_requests_swapped": ({}, swapping),
            "vllm:cpu_cache_usage_perc": (
                {},
                points((onset, 0.0), (1455.0, 0.704), (1460.0, 0.779), (2400.0, 0.95)),
            ),
        },
    )
    serve(stage, traffic, page, records=False)
    for at, prompt, rate, run, swap, pend, gpu, cpu in (
        (1455.0, 2706.1, 13395.4, 34, 100, 9832, 99.2, 70.4),
        (1460.0, 3737.0, 8906.6, 37, 137, 9779, 76.6, 77.9),
    ):
        text = (
            f"Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: {rate} tokens/s, Running: {run} reqs, "
            f"Swapped: {swap} reqs, Pending: {pend} reqs, GPU KV cache usage: {gpu}%, CPU KV cache usage: {cpu}%."
        )
        stage.say("vllm", at, _v0(stage, at, "INFO", "metrics.py:341", text))
    warning = (
        "Sequence group 165 is preempted by PreemptionMode.SWAP mode because there is not enough KV cache space. This can "
        "affect the end-to-end performance. Increase gpu_memory_utilization or tensor_parallel_size to provide more KV "
        "cache memory. total_num_cumulative_preemption=151"
    )
    stage.say("vllm", 1455.5, _v0(stage, 1455.0, "WARNING", "scheduler.py:1089", warning))
    return stage.bundle()


def _v0(stage: Stage, at: float, level: str, source: str, text: str) -> str:
    return vllm_line(stage, at, text, level=level, source=source).replace(f"[{source}]", f"{source}]")


KV_CAPACITY = (
    Reconstructed(
        "KV-THRASH-8REQ", _FAMILY, "vllm-project/vllm#21809", "reporter-confirmed",
        "eight requests, none waiting; six status lines word for word (239.2 to 240.8 tokens/s, KV 91.2 to 95.8 % in two "
        "minutes), hit rate 0; the reporter's words for what follows: it breaks dramatically.",
        "prompts of 27,600 tokens and a pool of 600,000 (both from +0.4 points per 10 s at 240 tokens/s); everything after "
        "95.8 %, which was cut off: 8 tokens/s a stream, two of eight preempted at a time; GPU and host.",
        Label("kv_cache_exhaustion", "the pool fills by growth of what was admitted; the thread's cause is the recompute thrash",
              accept=("long_outputs", "context_growth"), must_not=("load_burst", "thermal_throttle", "power_cap", "spec_decode_collapse"),
              onset_seconds=1485.0),
        _thrash,
    ),
    Reconstructed(
        "KV-CAP-43", _FAMILY, "MiaAI-Lab/GLM-5.3-Flash-2x-DGX-Sparks#43", "reporter-confirmed",
        "2 running, 1 waiting, 1 of it for capacity; kv_cache_size_tokens 1,526,178, kv_cache_max_concurrency 1.53, "
        "max_model_len 1,000,000, max_num_seqs 4.",
        "the requests: one of 560,000 tokens at a time at first, from 1,830 s three of 640,000 at once; speeds, GPU, host.",
        Label("kv_cache_exhaustion", "the token pool is the limiter, not the number of sequences",
              accept=("context_growth", "load_burst"), must_not=("sequence_limit", "grammar_stall"), onset_seconds=1830.0),
        _capacity,
    ),
    Reconstructed(
        "KV-TRT-16827", _FAMILY, "NVIDIA/TensorRT-LLM#16827", "reporter-confirmed",
        "long context 161.0 to 95.7 tokens/s, TPOT p99 122 to 1,111 ms, E2E p99 150 to 563 s after MAX_UTILIZATION replaced "
        "GUARANTEED_NO_EVICT; the short-context control is unchanged.",
        "one run with the change in the middle instead of two runs; clients' records only, prompt lengths, the control's rate.",
        Label("config_change", "the scheduler policy is what was changed; thrash of the pool is how it hurts",
              accept=("kv_cache_exhaustion", "unknown"), must_not=("gpu_hardware_fault", "network_latency"), onset_seconds=3900.0),
        _policy,
    ),
    Reconstructed(
        "KV-SWAP-5578", _FAMILY, "vllm-project/vllm#5578", "reporter-confirmed",
        "two V0 status lines and the warning between them: running 34 and 37, swapped 100 and 137, pending 9,832 and 9,779, "
        "GPU KV 99.2 and 76.6 %, CPU KV 70.4 and 77.9 %, 13,395.4 and 8,906.6 tokens/s, 151 preemptions.",
        "the batch runs from the beginning, the pool fills until 1,140 s, then it swaps; a token's time doubles and more.",
        Label("kv_cache_exhaustion", "over-admission fills the pool; V0 swaps what it admitted", accept=("long_outputs",),
              must_not=("network_latency", "host_cpu_starvation"), onset_seconds=1140.0),
        _swap,
    ),
)  # fmt: skip
