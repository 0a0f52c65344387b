"""Families K and L: figures that lie, and a control in which nothing is wrong."""

from __future__ import annotations

import numpy as np

from diag.signals.frame import RawSeries
from diag.simulate.observed import HISTOGRAMS
from diag.simulate.parts import Bundle
from diag.simulate.profiles import constant, step
from diag.simulate.reconstructed.case import Label, Reconstructed
from diag.simulate.reconstructed.engine_pages import Page
from diag.simulate.reconstructed.flow import Ask, flow
from diag.simulate.reconstructed.lines import decode_line, vllm_line
from diag.simulate.reconstructed.machine_pages import Board, Host, dcgm
from diag.simulate.reconstructed.service import calm, machine, points, serve, started
from diag.simulate.reconstructed.stage import Stage

__all__ = ["TELEMETRY_TRAPS"]

_TRAP = "K metrics-trap"
_CONTROL = "L control"


def _frozen() -> Bundle:
    stage = Stage(seconds=3600.0, step_seconds=30.0, start=1_754_578_800.0)  # 2025-08-07 15:00:00
    aborted = 2110.0
    traffic = calm(requests_per_second=step(aborted, 1.0, 0.0), prompt_tokens=2_500.0, output_tokens=2_000.0, token_seconds=0.053,
                   speed=step(aborted, 1.0, 0.0), cached_ratio=0.305, queue_seconds=14.0)  # fmt: skip
    gauges = {"running": constant(106.0), "waiting": constant(15.0), "kv": constant(0.904)}
    page = Page(gauges=gauges, cpu_ratio=step(aborted, 0.4, 0.03))
    serve(stage, traffic, page)
    serve(stage, calm(requests_per_second=0.3, seed=2), Page(host="gpu-1:8000"))
    for index, power in ((0, step(aborted, 560.0, 76.0)), (1, constant(430.0))):
        busy = step(aborted, 0.95, 0.0) if index == 0 else constant(0.6)
        dcgm(
            stage, Board(node=f"gpu-{index}", utilization=busy, power_watts=power, clock_mhz=constant(1755.0))
        )
    text = (
        "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 106 reqs, Waiting: 15 "
        "reqs, GPU KV cache usage: 90.4%, Prefix cache hit rate: 30.5%"
    )
    for at in (2123.0, 2133.0, 2143.0):
        stage.say("gpu-0", at, vllm_line(stage, at, text, level="DEBUG", source="loggers.py:122"))
    return stage.bundle()


_OLD_NAMES = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:prefix_cache_queries_total": "vllm:gpu_prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total": "vllm:gpu_prefix_cache_hits_total",
    "vllm:inter_token_latency_seconds_bucket": "vllm:time_per_output_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_sum": "vllm:time_per_output_token_seconds_sum",
    "vllm:inter_token_latency_seconds_count": "vllm:time_per_output_token_seconds_count",
}


def _renamed() -> Bundle:
    stage = Stage()
    upgrade = 1200.0
    made = serve(
        stage,
        calm(cached_ratio=0.5),
        Page(
            resets=(upgrade,),
            gauges={"kv": points((0.0, 0.31), (800.0, 0.36), (1500.0, 0.3), (2400.0, 0.34))},
        ),
    )
    machine(stage, made)
    split: list[RawSeries] = []
    for series in stage.metrics["engine"]:
        old = _OLD_NAMES.get(series.labels["__name__"])
        if old is None:
            split.append(series)
            continue
        early = series.times < stage.start + upgrade
        split.append(RawSeries({**series.labels, "__name__": old}, series.times[early], series.values[early]))
        split.append(RawSeries(series.labels, series.times[~early], series.values[~early]))
    stage.metrics["engine"] = split
    stage.event(upgrade, "deploy", "gpu-0:8000", "vLLM 0.10.1 -> 0.12.0")
    return stage.bundle()


def _summed() -> Bundle:
    stage = Stage()
    for number in range(2):
        page = Page(host=f"gpu-{number}:8000", gauges={"kv": constant(0.40)})
        serve(stage, calm(seed=number + 1, requests_per_second=0.25), page)
    return stage.bundle()


def _top_bucket() -> Bundle:
    stage = Stage(seconds=3600.0, step_seconds=30.0)
    bounds = tuple(bound for bound in HISTOGRAMS["e2e_seconds"] if bound <= 60.0)
    traffic = calm(requests_per_second=0.15, output_tokens=4_000.0, token_seconds=0.03, pool_tokens=900_000.0)
    made = serve(stage, traffic, Page(e2e_bounds=bounds))
    machine(stage, made)
    return stage.bundle()


def _one_engine_of_two() -> Bundle:
    stage = Stage()
    made = serve(stage, calm(requests_per_second=0.3), Page(engine="1", model="deepseek-v4-flash-w8a8-mtp"))
    idle = Page(
        engine="0",
        model="deepseek-v4-flash-w8a8-mtp",
        process=False,
        gauges={"running": constant(0.0), "waiting": constant(0.0)},
    )
    serve(stage, calm(requests_per_second=0.0), idle, records=False)
    machine(stage, made)
    started(stage, "vllm", {"data_parallel_size": 2, "api_server_count": 2})
    return stage.bundle()


def _no_page() -> Bundle:
    stage = Stage()
    made = flow(calm(), stage.seconds)
    stage.record(made, "gpu-0:8000")
    labels = {"instance": "gpu-0:8000", "job": "vllm"}
    stage.put("engine", "up", labels, np.zeros(len(stage.times)))
    stage.put("engine", "scrape_duration_seconds", labels, stage.noisy(0.03, 0.1))
    machine(stage, made, gpus=4)
    for n in range(160):
        stage.say(
            "vllm",
            15.0 * n,
            f'INFO:     10.0.0.5:{40000 + n} - "GET /metrics HTTP/1.1" 500 Internal Server Error',
        )
    return stage.bundle()


def _impossible_share() -> Bundle:
    stage = Stage(step_seconds=60.0, seconds=7200.0)
    serve(stage, calm())
    bad = {
        0: (808_334_905.0, 4_294_967_295.0),
        1: (686_103.0,),
        2: (627_618.0, 127_622.0),
        3: (2_619.0, 1_980.0),
    }
    for index, samples in bad.items():
        dcgm(stage, Board(index=index))
        for row, series in enumerate(stage.metrics["gpu"]):
            if series.labels["__name__"] == "DCGM_FI_DEV_GPU_UTIL" and series.labels["gpu"] == str(index):
                values = series.values.copy()
                for n, sample in enumerate(samples):
                    values[70 + 9 * index + 20 * n] = sample
                stage.metrics["gpu"][row] = RawSeries(series.labels, series.times, values)
    return stage.bundle()


_VANISHED = ("XID_ERRORS", "CLOCKS_EVENT_REASONS", "THERMAL_VIOLATION", "POWER_VIOLATION")


def _not_available() -> Bundle:
    stage = Stage()
    upgrade = 1200.0
    made = serve(stage, calm())
    machine(stage, made, gpus=2)
    for row, series in enumerate(stage.metrics["gpu"]):
        if series.labels["__name__"].removeprefix("DCGM_FI_DEV_") in _VANISHED:
            kept = series.times < stage.start + upgrade
            stage.metrics["gpu"][row] = RawSeries(series.labels, series.times[kept], series.values[kept])
    stage.event(upgrade, "deploy", "dcgm-exporter", "dcgm-exporter 4.4.1 -> 4.5.3")
    return stage.bundle()


def _debug_lines() -> Bundle:
    stage = Stage()
    made = serve(stage, calm())
    machine(stage, made)
    for n in range(120):
        at = 20.0 * n
        for text in (
            'error="couldn\'t parse number from: 510.47.03" query_field_name=driver_version raw_value=510.47.03',
            'error="couldn\'t parse number from: nvidia a100-pcie-40gb" query_field_name=name raw_value="NVIDIA A100-PCIE-40GB"',
            'error="couldn\'t parse number from: [n/a]" query_field_name=fan.speed raw_value="[N/A]"',
        ):
            stage.say("nvidia_gpu_exporter", at, f"level=debug caller=exporter.go:171 {text}")
    return stage.bundle()


def _flipping_gauge() -> Bundle:
    stage = Stage()
    made = serve(stage, calm(cached_ratio=0.6), engine="sglang", turns=8)
    machine(stage, made)
    drop = ("sglang:cached_tokens_total",)
    stage.metrics["engine"] = [one for one in stage.metrics["engine"] if one.labels["__name__"] not in drop]
    flips = np.where(np.arange(len(stage.times)) % 4 == 3, 0.61, 0.0)
    labels = {
        "model_name": "model",
        "instance": "gpu-0:8000",
        "job": "sglang",
        "engine_type": "unified",
        "pp_rank": "0",
        "tp_rank": "0",
    }
    stage.put("engine", "sglang:cache_hit_rate", labels, flips)
    return stage.bundle()


def _created() -> Bundle:
    stage = Stage()
    made = serve(stage, calm(), Page(model="zai-org/GLM-4.5", more={
        "vllm:request_max_num_generation_tokens_created": ({}, constant(1.7537953269356403e09)),
        "vllm:request_params_n_created": ({}, constant(1.753795326935825e09)),
        "vllm:generation_tokens_created": ({}, constant(1.7537953269356403e09)),
    }))  # fmt: skip
    machine(stage, made)
    return stage.bundle()


def _growing_context() -> Bundle:
    stage = Stage(seconds=1200.0, step_seconds=10.0, start=1_740_630_600.0)  # 2025-02-27 04:30:00
    asks = tuple(Ask(-60.0 + 0.1 * n, 4_000, 40_000, queue_seconds=0.0) for n in range(8))
    # 8 streams: 62,531 tokens at 04:46:39 (999 s) at 186.64 tokens/s, 65,091 at 04:46:53 at 184.38.
    tokens = points((0.0, 8 / 197.0), (999.0, 8 / 186.64), (1013.0, 8 / 184.38), (1200.0, 8 / 182.0))
    traffic = calm(
        requests_per_second=0.0, token_seconds=tokens, asks=asks, pool_tokens=510_000.0, cached_ratio=0.0
    )
    made = serve(stage, traffic, engine="sglang", records=False)
    machine(stage, made, node=Host())
    for at, count, usage, rate in (
        (999.0, 62_531, 0.12, 186.64),
        (1001.0, 62_851, 0.13, 185.93),
        (1006.0, 63_811, 0.13, 184.27),
        (1013.0, 65_091, 0.13, 184.38),
    ):
        stage.say("sglang", at, decode_line(stage, at, running=8, tokens=count, usage=usage, rate=rate))
    return stage.bundle()


TELEMETRY_TRAPS = (
    Reconstructed(
        "MET-STALE-22545", _TRAP, "vllm-project/vllm#22545", "maintainer-confirmed",
        "running 106, waiting 15, KV 90.4 %, hit rate 30.5 % on three lines ten seconds apart (15:35:23 on), 0.0 tokens/s; all "
        "requests were aborted before.",
        "that it was busy with exactly that until 15:35:10; its GPU at rest after; a second pod that takes the traffic.",
        Label("telemetry_fault", "gauges without an engine step: the pod is idle", accept=(None,),
              must_not=("engine_stall", "load_burst", "kv_cache_exhaustion", "sequence_limit", "kv_block_leak"), onset_seconds=2110.0),
        _frozen,
    ),
    Reconstructed(
        "MET-RENAME-29330", _TRAP, "vllm-project/vllm#29330", "maintainer-confirmed",
        "gpu_cache_usage_perc, gpu_prefix_cache_* and time_per_output_token_seconds became kv_cache_usage_perc, prefix_cache_* and "
        "inter_token_latency_seconds.",
        "an orderly upgrade at 1,200 s of a healthy service.",
        Label(None, "names changed, the service did not", accept=("telemetry_fault",),
              must_not=("prefix_cache_off", "prefix_cache_broken", "kv_cache_exhaustion", "config_change")),
        _renamed,
    ),
    Reconstructed(
        "MET-SUMPCT-1188", _TRAP, "GoogleCloudPlatform/monitoring-dashboard-samples#1188", "maintainer-confirmed",
        "two pods at 40 % of their KV each, shown as 80 %.",
        "two healthy pods.",
        Label(None, "the dashboard adds percentages", must_not=("kv_cache_exhaustion", "kv_block_leak")),
        _summed,
    ),
    Reconstructed(
        "MET-BUCKET-15167", _TRAP, "vllm-project/vllm#15167", "maintainer-confirmed",
        "end-to-end bounds that end at 60 s, so that p99 reads 60 s.",
        "answers of about two minutes (4,000 tokens at 30 ms), all of them well.",
        Label(None, "the true p99 is above the last bound; nothing changes", must_not=("proxy_limit", "long_outputs")),
        _top_bucket,
    ),
    Reconstructed(
        "MET-DPLOG-10049", _TRAP, "vllm-project/vllm-ascend#10049", "maintainer-confirmed",
        'num_requests_running{engine="0"} 0.0 beside engine="1" on one page.',
        "that engine 1 works at a constant rate while engine 0 rests.",
        Label(None, "a partial view, no imbalance to act on", accept=("unknown",), must_not=("routing_hotspot", "engine_stall")),
        _one_engine_of_two,
    ),
    Reconstructed(
        "MET-500NFS-49983", _TRAP, "vllm-project/vllm#49983", "reporter-confirmed",
        "TP 4, /metrics always answers 500, inference is fine.",
        "healthy clients' records, GPUs, host, access lines.",
        Label("telemetry_fault", "the collection fails, the service does not", accept=(None,), must_not=("engine_stall", "engine_restart")),
        _no_page,
    ),
    Reconstructed(
        "MET-GPUUTIL-418", _TRAP, "NVIDIA/dcgm-exporter#418", "reporter-confirmed",
        "single utilisations of 808,334,905, 686,103, 627,618, 127,622, 2,619, 1,980 and 4,294,967,295 %.",
        "spread over four GPUs in two hours of a healthy service.",
        Label(None, "bad samples", must_not=("noisy_neighbour", "gpu_hardware_fault")),
        _impossible_share,
    ),
    Reconstructed(
        "MET-DCGMNA-700", _TRAP, "NVIDIA/dcgm-exporter#700", "likely",
        "zeros on 4.4.1 and N/A on 4.5.3: Xid and clock-event series disappear.",
        "the upgrade at 1,200 s beside a healthy service.",
        Label(None, "throttling and Xids become unknown, not absent", accept=("telemetry_fault",), must_not=("config_change",),
              keep_open=("thermal_throttle", "gpu_hardware_fault")),
        _not_available,
    ),
    Reconstructed(
        "MET-NADEBUG-68", _TRAP, "utkuozdemir/nvidia_gpu_exporter#68", "maintainer-confirmed",
        "debug lines: couldn't parse number from 510.47.03, from the card's name, from [n/a].",
        "a healthy service.",
        Label(None, "alarming lines that mean nothing", must_not=("telemetry_fault", "gpu_hardware_fault")),
        _debug_lines,
    ),
    Reconstructed(
        "MET-SGLHIT-26608", _TRAP, "sgl-project/sglang#26608", "reporter-confirmed",
        "cache_hit_rate reads 0 at most scrapes while cached tokens are right.",
        "a gauge that is 0.61 at every fourth scrape; records with cached tokens; no counters (an early version).",
        Label(None, "a gauge of the last batch", accept=("telemetry_fault",), must_not=("prefix_cache_broken", "prefix_cache_off")),
        _flipping_gauge,
    ),
    Reconstructed(
        "MET-CREATED-617", _TRAP, "vllm-project/production-stack#617", "likely",
        "request_max_num_generation_tokens_created 1.7537953269356403e+09 and its like.",
        "a healthy service.",
        Label(None, "times of creation, not sizes", must_not=("long_outputs", "context_growth")),
        _created,
    ),
    Reconstructed(
        "CTL-CTXDECAY-3909", _CONTROL, "sgl-project/sglang#3909", "likely",
        "8 running, 62,531 to 65,091 tokens, 186.64 to 184.38 tokens/s, queue 0 (four lines word for word).",
        "the sixteen minutes before, on the same slope; GPU, host.",
        Label(None, "decode slows as contexts grow", accept=("long_outputs",),
              must_not=("thermal_throttle", "host_memory_leak", "kv_cache_exhaustion", "kv_block_leak")),
        _growing_context,
    ),
)  # fmt: skip
