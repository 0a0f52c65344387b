"""Family B: running 0 or 1, waiting N, health 200 - one picture, many mechanisms."""

from __future__ import annotations

from diag.simulate.parts import Bundle
from diag.simulate.profiles import constant, step
from diag.simulate.reconstructed.case import Label, Reconstructed
from diag.simulate.reconstructed.engine_pages import Page
from diag.simulate.reconstructed.flow import Ask, flow
from diag.simulate.reconstructed.lines import status_lines, vllm_line
from diag.simulate.reconstructed.service import calm, machine, points, serve, started
from diag.simulate.reconstructed.stage import Stage

__all__ = ["ADMISSION"]

_FAMILY = "B admission-deadlock"
_NEVER = 1e6  # seconds in the queue: beyond every window
_REASON = "vllm:num_requests_waiting_by_reason"


def _oversize() -> Bundle:
    stage = Stage()
    onset, gone = 1440.0, 1920.0
    giant = Ask(
        onset, 150_000, 400, queue_seconds=_NEVER, tenant="reports", leaves_after_seconds=gone - onset
    )
    behind = points((onset, 0.004), (onset, gone - onset), (gone, 0.004))
    traffic = calm(queue_seconds=behind, pool_tokens=76_640.0, asks=(giant,))
    made = serve(stage, traffic, Page(more={
        f"{_REASON}#c": ({"reason": "capacity"}, points((onset, 0.0), (onset, 1.0), (gone - 15.0, 160.0), (gone, 0.0))),
        f"{_REASON}#d": ({"reason": "deferred"}, constant(0.0)),
    }))  # fmt: skip
    machine(stage, made)
    started(stage, "vllm", {"model": "gemma-4-31b", "tensor_parallel_size": 2}, "Using max model len 262144",
            "GPU KV cache size: 76,640 tokens")  # fmt: skip
    status_lines(stage, made, "vllm")
    return stage.bundle()


def _deferred() -> Bundle:
    stage = Stage()
    first, last = 900.0, 1500.0
    parked = tuple(
        Ask(first + n * (last - first) / 32, 900, 200, queue_seconds=_NEVER, tenant="streaming")
        for n in range(32)
    )
    deferred = points((first, 0.0), (last, 32.0))
    traffic = calm(queue_seconds=step(last, 0.004, _NEVER), asks=parked)
    page = Page(
        more={
            f"{_REASON}#c": ({"reason": "capacity"}, constant(0.0)),
            f"{_REASON}#d": ({"reason": "deferred"}, deferred),
        }
    )
    made = serve(stage, traffic, page)
    machine(stage, made)
    started(stage, "vllm", {"max_num_seqs": 32}, "GPU KV cache size: 400,000 tokens")
    return stage.bundle()


def _offload() -> Bundle:
    stage = Stage()
    onset = 1560.0
    traffic = calm(requests_per_second=0.5, prompt_tokens=6_000.0, output_tokens=400.0, pool_tokens=60_000.0,
                   cached_ratio=0.3, queue_seconds=step(onset, 0.2, _NEVER))  # fmt: skip
    held = points((0.0, 0.62), (onset - 300.0, 0.7), (onset, 0.97), (onset + 30.0, 0.62), (2400.0, 0.62))
    page = Page(
        gauges={"kv": held},
        counters={
            "vllm:external_prefix_cache_queries_total": ({}, step(onset, 2_100.0, 0.0)),
            "vllm:external_prefix_cache_hits_total": ({}, step(onset, 1_300.0, 0.0)),
        },
    )
    made = serve(stage, traffic, page)
    machine(stage, made)
    started(stage, "vllm", {"kv_transfer_config": {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}},
            "GPU KV cache size: 60,000 tokens")  # fmt: skip
    return stage.bundle()


def _lora() -> Bundle:
    stage = Stage(start=1_735_300_800.0)  # 2024-12-27 12:00:00
    onset = 1200.0
    traffic = calm(
        requests_per_second=0.15, prompt_tokens=24_500.0, output_tokens=300.0, token_seconds=1 / 45.7, spread=0.05,
        prefill_tokens_per_second=30_000.0, queue_seconds=step(onset, 0.05, 20.0), pool_tokens=803_696.0, cached_ratio=0.0,
        tenants=("adapter-a", "adapter-b", "adapter-c", "adapter-d"),
    )  # fmt: skip
    page = Page(
        old=True, gauges={"running": constant(1.0), "waiting": step(onset, 0.0, 3.0), "kv": constant(0.031)}
    )
    serve(stage, traffic, page)
    for at, text in ((-7200.0, "# GPU blocks: 50231, # CPU blocks: 8192"),
                     (-7199.0, "Maximum concurrency for 32768 tokens per request: 24.53x")):  # fmt: skip
        stage.say("vllm", at, vllm_line(stage, at, text, source="distributed_gpu_executor.py:57"))
    stage.say(
        "vllm",
        -7201.0,
        vllm_line(stage, -7201.0, "non-default args: {'enable_lora': True, 'tensor_parallel_size': 8}"),
    )
    for number in range(1, 120):
        at = onset + 10.0 * number
        text = (
            "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 45.7 tokens/s, Running: 1 reqs, Swapped: 0 reqs, "
            "Pending: 3 reqs, GPU KV cache usage: 3.1%, CPU KV cache usage: 0.0%"
        )
        stage.say("vllm", at, vllm_line(stage, at, text, source="metrics.py:455"))
    return stage.bundle()


def _asynchronous() -> Bundle:
    stage = Stage()
    onset = 1380.0
    traffic = calm(requests_per_second=step(900.0, 2.0, 3.0), prompt_tokens=600.0, output_tokens=1.0, cached_ratio=0.0,
                   queue_seconds=points((onset, 0.01), (onset + 300.0, 5.0), (2400.0, 9.0)))  # fmt: skip
    page = Page(gauges={"running": points((900.0, 2.0), (onset, 16.0), (2400.0, 16.0))})
    made = serve(stage, traffic, page, records=False)
    machine(stage, made)
    started(
        stage, "vllm", {"max_num_seqs": 16, "async_scheduling": True}, "GPU KV cache size: 400,000 tokens"
    )
    return stage.bundle()


def _offload_slow() -> Bundle:
    stage = Stage(seconds=21_600.0, step_seconds=120.0, start=1_785_596_400.0)  # 2026-08-01 15:00:00
    # Queue means 41 … 338 s; the rule (over 30 s for 15 min) would have fired at 18:35, a person noticed at 21:50.
    onset = 12_000.0
    queue = points((0.0, 0.4), (onset, 0.4), (12_300.0, 41.0), (13_800.0, 70.0), (15_600.0, 119.0), (17_400.0, 207.0), (19_200.0, 282.0),
                   (21_000.0, 338.0))  # fmt: skip
    load = points(
        (0.0, 4.0),
        (onset, 4.0),
        (12_300.0, 10.7),
        (13_800.0, 12.6),
        (15_600.0, 36.8),
        (17_400.0, 41.8),
        (19_200.0, 94.8),
    )
    rate = points((0.0, 0.03), (onset, 0.03), (onset + 600.0, 0.015), (21_600.0, 0.015))
    traffic = calm(
        requests_per_second=rate,
        prompt_tokens=9_000.0,
        output_tokens=500.0,
        token_seconds=0.05,
        queue_seconds=queue,
    )
    page = Page(
        gauges={
            "running": step(onset + 600.0, float("nan"), 1.0),
            "waiting": points((onset, 0.0), (onset + 600.0, 5.0), (21_600.0, 5.0)),
            "kv": points((0.0, 0.5), (onset, 0.6), (onset + 600.0, 0.64)),
        },
        counters={"vllm:kv_offload_total_time": ({"transfer_type": "CPU_to_GPU"}, load.scaled(0.03))},
    )
    made = serve(stage, traffic, page)
    machine(stage, made)
    started(
        stage, "vllm", {"kv_transfer_config": {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}}
    )
    text = ("Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 20.0 tokens/s, Running: 1 reqs, "
            "Waiting: 5 reqs, GPU KV cache usage: 64.0%, Prefix cache hit rate: 20.0%")  # fmt: skip
    for at in range(int(onset) + 900, 21_600, 300):
        stage.say("vllm", float(at), vllm_line(stage, float(at), text))
    return stage.bundle()


def _lost_transfer() -> Bundle:
    stage = Stage()
    onset = 1500.0
    traffic = calm(queue_seconds=step(onset, 0.05, _NEVER), prompt_tokens=3_000.0)
    stage.record(flow(traffic, stage.seconds), "dynamo-frontend:8000")
    moment = "[TensorRT-LLM][ERROR] Couldn't find the requested block in the reuse tree (kvCacheUtils.h:84)"
    stage.say("prefill-2", onset - 2.0, f"2026-06-01 12:24:58 {moment}")
    return stage.bundle()


ADMISSION = (
    Reconstructed(
        "ADM-OVERSIZE-39734", _FAMILY, "vllm-project/vllm#39734", "reporter-confirmed",
        "max model len 262144, GPU KV cache size 76,640 tokens; running 0, waiting at least 1, no throughput until the one "
        "client times out.",
        "the giant's length (150,000), its patience (480 s), the chat traffic around it, GPU, host.",
        Label("oversized_request", "the request at the head needs more KV than the whole pool",
              must_not=("engine_stall", "kv_transfer_failure", "gpu_hardware_fault"), onset_seconds=1440.0),
        _oversize,
    ),
    Reconstructed(
        "ADM-DEFERRED-53130", _FAMILY, "vllm-project/vllm#53130", "likely",
        "running plus waiting for reason deferred equals max_num_seqs, health 200, KV mostly free, only a restart helps.",
        "max_num_seqs 32; one request more is parked every 19 s from 900 s on; the chat traffic, GPU, host.",
        Label("engine_stall", "parked requests that nobody promotes: healthy, but not serving",
              accept=("sequence_limit", "unknown"), must_not=("kv_cache_exhaustion", "oversized_request"), onset_seconds=1500.0),
        _deferred,
    ),
    Reconstructed(
        "ADM-OFFLOAD-45388", _FAMILY, "vllm-project/vllm#45388", "maintainer-confirmed",
        "running 0, waiting N, no throughput for good, under KV pressure with an offload connector; KV is held.",
        "when, how full (97 % before, 62 % held after), the traffic, the external cache's counters.",
        Label("engine_stall", "finished loads behind an unschedulable head are never picked up: a deadlock",
              must_not=("oversized_request", "gpu_hardware_fault"), onset_seconds=1560.0),
        _offload,
    ),
    Reconstructed(
        "ADM-LORA-11517", _FAMILY, "vllm-project/vllm#11517", "likely",
        "V0, TP 8 with adapters: running 1, pending 3, KV 3.1 %, 45.7 tokens/s; 50,231 GPU blocks, 24.53 x of 32,768 tokens.",
        "requests of 24,500 tokens (3.1 % of the pool), one at a time; that only one adapter was asked for until 1,200 s.",
        Label("sequence_limit", "adapter slots bind while KV is free; the thread has no accepted answer",
              accept=("unknown",), must_not=("kv_cache_exhaustion", "slow_gpu"), onset_seconds=1200.0),
        _lora,
    ),
    Reconstructed(
        "ADM-ASYNC-45257", _FAMILY, "vllm-project/vllm#45257", "likely",
        "running pinned at max_num_seqs by finished requests, answers of one token, waiting grows, KV free.",
        "max_num_seqs 16, three requests a second, waits up to 9 s, GPU, host.",
        Label("sequence_limit", "slots bind while KV and compute are free", accept=("unknown",),
              must_not=("kv_cache_exhaustion", "host_cpu_starvation"), onset_seconds=1380.0),
        _asynchronous,
    ),
    Reconstructed(
        "ADM-OFFLOADSLOW-4593", _FAMILY, "Tanguille/cluster#4593", "reporter-confirmed",
        "running 1, waiting 5, prompt throughput 0, 36 % of KV free; mean queue 41, 70, 119, 207, 282, 338 s (0.002 to 2.9 "
        "before), mean KV load 10.7, 12.6, 36.8, 41.8, 94.8 s (under 5 before); the queue rule would have fired at 18:35.",
        "half an hour between the posted means, traffic and lengths, GPU, host; loads as the connector's time counter.",
        Label("engine_stall", "admission waits for KV loads that get slower: parked connector loads",
              accept=("kv_transfer_failure",), must_not=("load_burst", "gpu_hardware_fault", "kv_cache_exhaustion"), onset_seconds=12_000.0),
        _offload_slow,
    ),
    Reconstructed(
        "ADM-TRT-12542", _FAMILY, "NVIDIA/TensorRT-LLM#12542", "reporter-confirmed",
        "one line on the prefill side (kvCacheUtils.h:84), then the pipeline is silently dead while health is fine.",
        "clients' records before and after; nothing else is known of the engine.",
        Label("engine_stall", "a lost KV transfer leaves decode waiting for ever", accept=("kv_transfer_failure", "unknown"),
              must_not=("network_latency", "load_burst"), onset_seconds=1500.0),
        _lost_transfer,
    ),
)  # fmt: skip
