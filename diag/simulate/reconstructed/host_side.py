"""Families E and F: Python, cgroups, garbage, NUMA, and memory that only grows."""

from __future__ import annotations

from diag.simulate.parts import Bundle, Record
from diag.simulate.profiles import constant, spells, step
from diag.simulate.reconstructed.case import Label, Reconstructed
from diag.simulate.reconstructed.engine_pages import Page
from diag.simulate.reconstructed.flow import Ask
from diag.simulate.reconstructed.lines import vllm_line
from diag.simulate.reconstructed.machine_pages import Board, Host
from diag.simulate.reconstructed.service import calm, machine, points, serve, started
from diag.simulate.reconstructed.stage import Stage

__all__ = ["HOST_SIDE"]

_CPU = "E cpu-host"
_MEMORY = "F host-memory"


def _interpreter() -> Bundle:
    stage = Stage()
    onset = 1200.0
    traffic = calm(
        requests_per_second=points((0.0, 1.6), (onset, 1.6), (onset + 60.0, 2.7), (2400.0, 2.7)), output_tokens=800.0, cached_ratio=0.0,
        token_seconds=points((0.0, 0.02), (onset, 0.02), (onset + 60.0, 0.058), (2400.0, 0.058)), pool_tokens=1_200_000.0,
    )  # fmt: skip
    page = Page(cpu_ratio=points((onset, 0.55), (onset + 60.0, 1.02), (2400.0, 1.02)))
    made = serve(stage, traffic, page, records=False)
    board = Board(
        utilization=points((onset, 0.88), (onset + 60.0, 0.67), (2400.0, 0.66)),
        power_watts=step(onset, 510.0, 430.0),
    )
    machine(stage, made, board=board, gpus=2, node=Host(user_ratio=constant(2.1 / 48)))
    return stage.bundle()


def _grammar_pool() -> Bundle:
    stage = Stage()
    onset = 1320.0
    bursts = tuple(onset + 70.0 * n for n in range(15))
    slow = spells(((at, at + 28.0) for at in bursts), 0.022, 0.14)
    asks = tuple(Ask(at + 3.0 * n, 1_500, 200, tenant="schemas") for at in bursts for n in range(3))
    traffic = calm(token_seconds=slow, asks=asks)
    made = serve(
        stage, traffic, Page(cpu_ratio=spells(((at, at + 28.0) for at in bursts), 0.35, 0.9)), records=False
    )
    stage.record(made, "gpu-0:8000")
    stage.requests = [{**one, "structured": int(one["tenant"] == "schemas")} for one in stage.requests]
    utilization = spells(((at, at + 28.0) for at in bursts), 0.8, 0.2)
    machine(
        stage,
        made,
        board=Board(utilization=utilization),
        node=Host(user_ratio=spells(((at, at + 28.0) for at in bursts), 0.05, 0.07)),
    )
    labels = {
        "instance": "gpu-0:10250",
        "job": "kubelet",
        "namespace": "llm",
        "pod": "vllm-0",
        "container": "vllm",
        "node": "gpu-0",
    }
    throttled = spells(((at, at + 28.0) for at in bursts), 0.1, 8.6)
    stage.put("node", "container_cpu_cfs_periods_total", labels, stage.integral(10.0, 9e4, 0.0))
    stage.put("node", "container_cpu_cfs_throttled_periods_total", labels, stage.integral(throttled, 40.0))
    stage.put("node", "container_memory_working_set_bytes", labels, stage.noisy(2.4e10, 0.002))
    return stage.bundle()


def _collections() -> Bundle:
    stage = Stage(seconds=5_700.0, step_seconds=25.0)
    uptime = 18_000.0  # 5 h at the window's start
    # 23 s at 3.5 h, 46 s at 6.5 h: about 35 s when the window opens.
    stall = points((12_600.0 - uptime, 23.0), (23_400.0 - uptime, 46.0))
    pauses = [(mark, mark + round(stall.at(mark))) for mark in (1_010.0 + 607.0 * n for n in range(8))]
    traffic = calm(
        requests_per_second=0.3, output_tokens=450.0, token_seconds=0.02, speed=spells(pauses, 1.0, 0.0)
    )
    page = Page(
        resident_bytes=points((0.0, 2.8e10), (5_700.0, 3.5e10)),
        uptime_seconds=uptime,
        cpu_ratio=constant(1.02),
    )
    made = serve(stage, traffic, page, engine="sglang")
    # The peers spin in a collective meanwhile: all of the time, at little power.
    board = Board(
        utilization=spells(pauses, 0.78, 1.0),
        power_watts=spells(pauses, 620.0, 290.0),
        limit_watts=constant(1100.0),
    )
    machine(stage, made, board=board)
    for begin, end in pauses:
        if end - begin > 20.0:
            at = begin + 20.0
            text = "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 10:20:11."
            stage.say("sglang", at, f"[{_clock(stage, at)}] {text}")
    return stage.bundle()


def _clock(stage: Stage, at: float) -> str:
    hours = 12.0 + at / 3600.0
    assert stage.seconds < 43_200.0
    return f"2026-06-01 {int(hours):02d}:{int(hours * 60) % 60:02d}:{int(hours * 3600) % 60:02d}"


def _frozen_step() -> Bundle:
    stage = Stage(seconds=1800.0)
    slow = ((600.0, 601.0), (900.0, 901.0), (1200.0, 1201.0), (1500.0, 1501.0))
    traffic = calm(
        requests_per_second=0.4, output_tokens=97.0, token_seconds=0.006, speed=spells(slow, 1.0, 0.0)
    )
    made = serve(stage, traffic)
    machine(stage, made)
    for at, took, tracked in ((1501.0, 4442.360, 1052645), (1503.0, 2164.036, 1035628)):
        text = (
            f"GC took {took:.3f}ms to complete. Collected 377 objects (out of {tracked}) in GC generation 2."
        )
        stage.say(
            "vllm",
            at + 290.0,
            "(EngineCore pid=3684) " + vllm_line(stage, at + 290.0, text, source="gc_utils.py:96"),
        )
    return stage.bundle()


def _detokenizer() -> Bundle:
    stage = Stage()
    asks = tuple(Ask(-140.0 + n, 600, 70_000, queue_seconds=0.0) for n in range(10))
    # 28 ms on the GPU and a gap on the host of 4.6 ms at 4,000 tokens, 8.9 ms at 60,000.
    traffic = calm(
        requests_per_second=0.0,
        token_seconds=points((0.0, 0.0326), (1950.0, 0.0369), (2400.0, 0.0378)),
        pool_tokens=1_600_000.0,
        asks=asks,
    )
    made = serve(stage, traffic, Page(cpu_ratio=points((0.0, 0.5), (2400.0, 0.75))), records=False)
    machine(
        stage,
        made,
        board=Board(
            utilization=points((0.0, 0.86), (1950.0, 0.76), (2400.0, 0.74)),
            power_watts=constant(70.0),
            limit_watts=constant(275.0),
        ),
    )
    return stage.bundle()


def _renderer() -> Bundle:
    stage = Stage()
    onset = 1260.0
    traffic = calm(requests_per_second=step(onset, 0.25, 0.8), output_tokens=400.0)
    made = serve(stage, traffic, records=False)
    machine(stage, made)
    stage.record(made, "gpu-0:8000")
    stage.requests = [_rendered(one, stage.start + onset) for one in stage.requests]
    sidecar = {"instance": "gpu-0:8088", "job": "render"}
    stage.put("engine", "process_cpu_seconds_total", sidecar, stage.integral(step(onset, 0.3, 0.99), 500.0))
    stage.put("engine", "process_resident_memory_bytes", sidecar, stage.noisy(9e8, 0.001))
    return stage.bundle()


def _rendered(record: Record, onset: float) -> Record:
    """The record with what the sidecar's event loop adds to the first chunk and to the last."""
    first, whole = (1.4, 9.0) if record["ts"] >= onset else (0.02, 0.1)
    factor = 0.8 + 0.04 * ((record["prompt_tokens"] * 7) % 10)
    added = {"ttft_seconds": first * factor, "duration_seconds": whole * factor}
    return {
        **record,
        **{name: round(record[name] + more, 4) for name, more in added.items() if name in record},
    }


def _numa(*, effect: float, remote: float, offload: bool) -> Bundle:
    stage = Stage()
    restart = 1200.0
    traffic = calm(
        token_seconds=step(restart, 0.03, 0.03 * effect), down=((restart, restart + 60.0),) if offload else ()
    )
    made = serve(stage, traffic)
    gigabyte_pages = 240_000.0
    counters = {
        "node_memory_numa_other_node_total": (
            {"node": "0"},
            step(restart, 0.018 * gigabyte_pages, remote * gigabyte_pages),
        ),
        "node_memory_numa_local_node_total": (
            {"node": "0"},
            step(restart, 0.982 * gigabyte_pages, (1 - remote) * gigabyte_pages),
        ),
    }
    machine(
        stage,
        made,
        node=Host(counters=counters),
        board=Board(model="Tesla V100-SXM2-32GB", limit_watts=constant(300.0), power_watts=constant(210.0)),
        gpus=2,
    )
    return stage.bundle()


def _block_ids() -> Bundle:
    stage = Stage(seconds=28_800.0, step_seconds=180.0)
    traffic = calm(
        requests_per_second=0.05, prompt_tokens=200.0, output_tokens=10.0, token_seconds=0.021, spread=0.1
    )
    resident = points((0.0, 4.0e9), (28_800.0, 2.9e10))
    made = serve(stage, traffic, Page(resident_bytes=resident, cpu_ratio=constant(1.6)))
    machine(stage, made, node=Host(available_bytes=points((0.0, 3.8e11), (28_800.0, 3.55e11))))
    return stage.bundle()


def _processor_cache() -> Bundle:
    stage = Stage(seconds=3600.0, step_seconds=20.0)
    killed, back = 2520.0, 2640.0
    resident = points((0.0, 8e9), (killed, 5.9e10), (killed, 8e9), (3600.0, 2.2e10))
    traffic = calm(requests_per_second=0.5, output_tokens=120.0, down=((killed, back),))
    made = serve(stage, traffic, Page(resident_bytes=resident))
    available = points((0.0, 5.4e10), (killed, 1.2e9), (killed, 6.1e10), (back, 5.5e10), (3600.0, 4.1e10))
    kills = spells(((killed, killed + 20.0),), 0.0, 0.05)
    machine(stage, made, node=Host(memory_bytes=6.4e10, available_bytes=available, oom_kills=kills))
    text = "Out of memory: Killed process 4121 (python3) total-vm:118401204kB, anon-rss:58212340kB"
    stage.say("kernel", killed, f"[{_clock(stage, killed)}] {text}")
    started(stage, "vllm", {"model": "Qwen2.5-Omni-7B"}, at=back - 60.0)
    return stage.bundle()


def _delayed_free() -> Bundle:
    stage = Stage()
    onset = 1500.0
    floor = points((0.0, 0.05), (onset, 0.93), (2400.0, 0.99))
    queue = points((onset, 0.01), (2400.0, 14.0))
    traffic = calm(requests_per_second=0.3, queue_seconds=queue)
    waiting = points((onset, 0.0), (2400.0, 5.0))
    made = serve(stage, traffic, Page(gauges={"kv": floor, "running": constant(1.0), "waiting": waiting}))
    machine(stage, made)
    started(stage, "vllm", {"kv_transfer_config": {"kv_connector": "DynamoConnector", "kv_role": "kv_both"}})
    for n in range(40):
        at = 60.0 * n + 30.0
        stage.say(
            "vllm",
            at,
            vllm_line(
                stage,
                at,
                f"Request cmpl-{n:04d} blocks freed delayed (async transfer pending)",
                source="connector.py:210",
            ),
        )
    return stage.bundle()


HOST_SIDE = (
    Reconstructed(
        "CPU-GIL-14538", _CPU, "vllm-project/vllm#14538", "maintainer-confirmed",
        "TP 2 on 48 cores, only two of them busy and those over 100 % for good; 128 at once: CPU 100 %, SM 60 to 75 %.",
        "a rise from 26 to 128 at once at 1,200 s; token times (20, then 58 ms), power, that clocks are normal.",
        Label("host_cpu_starvation", "scheduling, output and HTTP share Python's one core", accept=("load_burst",),
              must_not=("thermal_throttle", "power_cap", "kv_cache_exhaustion", "network_latency"), onset_seconds=1200.0),
        _interpreter,
    ),
    Reconstructed(
        "CPU-GRAMMARPOOL-49460", _CPU, "vllm-project/vllm#49460", "reporter-confirmed",
        "86 compile threads (172 host cores) under cpu.max of 6 to 12; decode stalls for requests without a grammar when new "
        "schemas come.",
        "a burst of three schemas every 70 s from 1,320 s on, 28 s each, 86 % of CFS periods throttled in them, GPU at 20 %.",
        Label("grammar_stall", "compilation of grammars burns the quota and stalls the step", accept=("host_cpu_starvation",),
              must_not=("gpu_hardware_fault", "kv_cache_exhaustion", "network_latency"), onset_seconds=1320.0),
        _grammar_pool,
    ),
    Reconstructed(
        "CPU-GC-SGL-28067", _CPU, "sgl-project/sglang#28067", "reporter-confirmed",
        "stalls of 7 s at 1 h, 23 s at 3.5 h, 46 s at 6.5 h of uptime; peers at 100 % and low power meanwhile; the health "
        "check's line; 20 s probe.",
        "the window from 5 h to 6 h 35 min of uptime, a stall every 10 minutes in its last 80, chat traffic, resident memory (28 to "
        "35 GB), power (620 and 290 W), one of eight GPUs.",
        Label("runtime_pauses", "stop-the-world collection over a heap that grows", accept=("host_memory_leak",),
              must_not=("gpu_hardware_fault", "load_burst"), onset_seconds=1010.0),
        _collections,
    ),
    Reconstructed(
        "CPU-GC-48229", _CPU, "vllm-project/vllm#48229", "unresolved",
        "single steps of 670.8, 828.5, 1,009.8 and 1,244.2 ms among steps of 6 ms, batch 32 of 97 steps; two GC lines, "
        "measured at teardown.",
        "one such step every five minutes, a second each (the grid's resolution); the traffic, GPU, host.",
        Label("unknown", "the thread has no accepted cause: garbage collection is suspected, not shown", accept=(None,),
              undecided=True, must_not=("thermal_throttle", "power_cap")),
        _frozen_step,
    ),
    Reconstructed(
        "CPU-DETOK-24174", _CPU, "vllm-project/vllm#24174", "reporter-confirmed",
        "10 requests, gap between steps 4.6 ms at 4,000 tokens and 8.9 ms at 60,000.",
        "28 ms on the GPU a step (L20, 14B), so that a token takes 13 % longer at the end; GPU share, CPU.",
        Label("host_cpu_starvation", "detokenisation on the host is what grows; 13 % is below what users feel",
              accept=(None, "unknown"), must_not=("kv_cache_exhaustion", "thermal_throttle")),
        _detokenizer,
    ),
    Reconstructed(
        "CPU-DERENDER-57350", _CPU, "vllm-project/vllm#57350", "reporter-confirmed",
        "a render sidecar, 20 at once: TTFT and token times grow with concurrency while the engine's queue is empty.",
        "from 1,260 s on 1.4 s to the first chunk and 9 s to the last beyond the engine; the sidecar's process at one core.",
        Label("host_cpu_starvation", "an event loop that does CPU work, outside the engine",
              accept=("proxy_limit", "network_latency"), must_not=("slow_gpu", "kv_cache_exhaustion", "prefill_interference"),
              onset_seconds=1260.0),
        _renderer,
    ),
    Reconstructed(
        "NUMA-678", _CPU, "1CatAI/1Cat-vLLM#678", "reporter-confirmed",
        "72.6 % of worker memory local, 98.2 % after binding; decode 1.9 % faster.",
        "in the other direction at 1,200 s: 98.2 to 72.6 % and 1.9 % slower; traffic, GPUs, NUMA counters.",
        Label(None, "a true anomaly that costs 1.9 %: nothing to feel", accept=("unknown",), must_not=("numa_misplacement",)),
        lambda: _numa(effect=1.019, remote=0.274, offload=False),
    ),
    Reconstructed(
        "NUMA-OFFLOAD-30492", _CPU, "vllm-project/vllm#30492", "reporter-confirmed",
        "with CPU offload the right NUMA nodes are about 1.5 times faster than any other setting.",
        "a restart at 1,200 s puts the process on the wrong side; 60 % of memory taken far away; traffic, GPUs.",
        Label("numa_misplacement", "the process runs far from its GPU, and offload makes it felt", must_not=("slow_gpu", "thermal_throttle"),
              onset_seconds=1200.0),
        lambda: _numa(effect=1.5, remote=0.6, offload=True),
    ),
    Reconstructed(
        "MEM-BLOCKIDS-44490", _MEMORY, "vllm-project/vllm#44490", "maintainer-confirmed",
        "8 h, resident memory grows in a straight line, p50 232 ms and 1.6 cores flat.",
        "4 to 29 GB; one request in 2,800 of the 4,012,263; GPU, host with room.",
        Label(None, "the leak is real, latency is flat: nobody is hurt yet", accept=("host_memory_leak",),
              must_not=("kv_block_leak", "kv_cache_exhaustion")),
        _block_ids,
    ),
    Reconstructed(
        "MEM-MMCACHE-351", _MEMORY, "QwenLM/Qwen2.5-Omni#351", "likely",
        "RAM climbs over 4,000 audio requests and is not given back; the process is killed in the next round.",
        "resident memory from 8 GB to a limit of 59 GB, the kill at 2,520 s and a restart two minutes later; traffic, GPU, host.",
        Label("host_memory_leak", "memory of the server grows until it dies (a cache without a bound that fits)",
              accept=("engine_restart",), must_not=("load_burst", "kv_cache_exhaustion"), onset_seconds=2520.0),
        _processor_cache,
    ),
    Reconstructed(
        "MEM-KVBMPIN-3730", _MEMORY, "ai-dynamo/dynamo#3730", "reporter-confirmed",
        "KV and memory grow, requests stay in maybe_finished_offloading; the line on delayed freeing.",
        "5 to 99 % of the pool over the window with one request running; waits from 1,500 s on; traffic, GPU, host.",
        Label("kv_block_leak", "blocks stay taken after requests ended", must_not=("load_burst", "context_growth"), onset_seconds=1500.0),
        _delayed_free,
    ),
)  # fmt: skip
