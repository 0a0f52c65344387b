"""Family G: GPUs that fail, slow down, or only look as if they did."""

from __future__ import annotations

from dataclasses import replace

from diag.simulate.parts import Bundle
from diag.simulate.profiles import constant, spells, step
from diag.simulate.reconstructed.case import Label, Reconstructed
from diag.simulate.reconstructed.engine_pages import Page
from diag.simulate.reconstructed.flow import flow
from diag.simulate.reconstructed.lines import vllm_line
from diag.simulate.reconstructed.machine_pages import Board, Host, dcgm, host, smi
from diag.simulate.reconstructed.service import calm, machine, points, serve, started
from diag.simulate.reconstructed.stage import Stage

__all__ = ["GPU_HEALTH"]

_HARDWARE = "G gpu-hardware"
_LINKS = "G interconnect"


def _failing_memory() -> Bundle:
    stage = Stage(seconds=3000.0, step_seconds=20.0, start=1_780_326_000.0)  # 15:00
    first, second = 1020.0, 2220.0  # 15:17 and 15:37
    down = ((first + 60.0, first + 480.0), (second + 60.0, second + 480.0))
    speed = spells(((first, first + 60.0), (second, second + 60.0)), 1.0, 0.0)
    serve(stage, calm(output_tokens=600.0, speed=speed, down=down), turns=6)
    rows = {"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": step(first, 11.0, 12.0)}
    for index in range(4):
        board = Board(index=index, model="NVIDIA A100 80GB PCIe", clock_mhz=constant(1410.0), max_clock_mhz=1410.0,
                      limit_watts=constant(300.0), power_watts=constant(230.0))  # fmt: skip
        if index == 2:
            board = replace(
                board,
                address="00000000:9C:00.0",
                xid=points((first, 0.0), (first, 94.0), (second, 94.0)),
                uncorrectable=points((first, 0.0), (first, 1.0), (second, 1.0), (second, 2.0)),
                more=rows,
            )
        dcgm(stage, board)
    host(stage, Host())
    for at in (first, second):
        for n, (code, text) in enumerate((
            (48, "DBE (double bit error) ECC error at HBM framebuffer FBPA 9 subpartition 1"),
            (63, "Row Remapper: New row marked for remapping, reset gpu to activate."),
            (94, "pid=4411, name=python3, Contained: SM (0x1). RST: No, D-RST: No"),
            (154, "GPU recovery action changed from 0x0 (None) to 0x2 (Drain and Reset)"),
        )):  # fmt: skip
            stage.say("kernel", at + n, f"[{_clock(15, at + n)}] NVRM: Xid (PCI:0000:9c:00): {code}, {text}")
        stage.say(
            "vllm",
            at + 60.0,
            vllm_line(
                stage,
                at + 60.0,
                "EngineCore encountered a fatal error: RPC call to sample_tokens timed out.",
                level="ERROR",
                source="core.py:710",
            ),
        )
        started(stage, "vllm", {"tensor_parallel_size": 4}, at=at + 400.0)
    return stage.bundle()


def _clock(hour: int, at: float, day: str = "2026-06-01") -> str:
    seconds = int(hour * 3600 + at)
    return f"{day} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _exit_zero() -> Bundle:
    stage = Stage(seconds=3600.0, start=1_787_166_060.0)  # 2026-08-19 19:01:00, so that 19:41:00 is inside
    fault = 2400.0
    made = serve(stage, calm(down=((fault, 1e9),), requests_per_second=0.25))
    alive = points((fault, 0.82), (fault, 0.0))
    machine(stage, made, board=Board(model="NVIDIA GB10", address="0000000F:01:00.0", utilization=alive, power_watts=step(fault, 48.0, 6.0), limit_watts=constant(100.0), reasons=False,
                               used_bytes=step(fault, 9e10, 1e9), clock_mhz=step(fault, 2190.0, 210.0), max_clock_mhz=2190.0))  # fmt: skip
    text = "Xid (PCI:000f:01:00): 31, pid=2211, name=VLLM::EngineCor, MMU Fault: ENGINE GRAPHICS GPC3 GPCCLIENT_T1_7 faulted @ 0xee7a_a0203000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    stage.say("kernel", fault, f"[2026-08-19 19:41:00] NVRM: {text}")
    stage.say("vllm", fault + 2.0, vllm_line(stage, fault + 2.0, "Shutting down", source="launcher.py:110"))
    return stage.bundle()


def _whole_node() -> Bundle:
    stage = Stage(seconds=3600.0, step_seconds=30.0, start=1_780_339_500.0)  # 18:45; 19:14:43 is 1,783 s in
    begin, up = 1783.0, 2400.0
    serve(stage, calm(down=((begin + 55.0, up),)))
    addresses = tuple(f"0000:{slot}:00" for slot in ("9a", "f0", "bd", "1a", "3b", "4c", "5d", "ab"))
    for index, address in enumerate(addresses):
        board = Board(
            index=index,
            address=f"0000{address.upper()}.0",
            silent=((begin + 57.0, up),),
            xid=points((begin + 51.0, 0.0), (begin + 51.0, 31.0), (up, 31.0), (up, 0.0)),
            reasons=False,
        )
        dcgm(stage, board)
    host(stage, Host())
    stage.say(
        "kernel",
        begin,
        f"[{_clock(0, 69_283)}] NVRM: Xid (PCI:0000:1a:00): 13, Graphics Exception: ESR 0x57e7b0=0x81e0017 0x57e7b4=0x24 0x57e7a8=0x1f81fb60 0x57e7ac=0x1174",
    )
    for n, address in enumerate(addresses):
        at = 69_334 + (0, 0, 1, 2, 3, 4, 4, 5)[n]
        text = "channel 0x00000002, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC0 UNRECOGNIZED_CLIENT faulted @ 0x182400_0030198d. Fault is of type UNRECOGNIZED_FAULT UNRECOGNIZED_ACCESS_TYPE"
        stage.say(
            "kernel",
            begin + 51.0 + n * 0.6,
            f"[{_clock(0, at)}] NVRM: Xid (PCI:{address}): 31, pid=477445, name=python3, {text}",
        )
    started(stage, "vllm", {"tensor_parallel_size": 8}, at=up - 90.0)
    return stage.bundle()


def _stalled_collector() -> Bundle:
    stage = Stage(step_seconds=30.0)
    serve(stage, calm(), Page(host="r06-01:8000"))
    counts = {
        "r06-01": 11_760,
        "r06-12": 13_104,
        "r06-03": 11_984,
        "r06-06": 10_416,
        "r06-18": 2_352,
        "r06-17": 1_120,
    }
    flaps = tuple((1100.0 + 150.0 * n, 1190.0 + 150.0 * n) for n in range(8))
    for node, count in counts.items():
        suspect = node == "r06-01"
        board = Board(
            node=node, model="NVIDIA GB200", xid=constant(45.0), more={"DCGM_EXP_XID_ERRORS_COUNT": constant(float(count))}, reasons=False,
            silent=flaps if suspect else (), scrape_seconds=points((1000.0, 0.05), (1100.0, 9.5), (2400.0, 9.8)) if suspect else constant(0.05),
        )  # fmt: skip
        dcgm(stage, board)
    return stage.bundle()


def _hidden_state() -> Bundle:
    stage = Stage()
    flip = 1290.0
    traffic = calm(
        requests_per_second=0.04,
        output_tokens=900.0,
        tokens_per_step=4.65,
        token_seconds=step(flip, 0.063, 0.094),
    )
    serve(stage, traffic)
    for index in range(4):
        node = f"gpu-{index}"
        power = step(flip, 52.0, 34.0) if index == 2 else step(flip, 52.0, 47.0)
        smi(stage, Board(node=node, model="NVIDIA GB10", utilization=constant(0.95), clock_mhz=constant(2178.0), max_clock_mhz=2418.0, power_watts=power,
                         limit_watts=constant(100.0), celsius=constant(62.0)))  # fmt: skip
    return stage.bundle()


def _flags_off() -> Bundle:
    stage = Stage(step_seconds=30.0)
    onset = 1200.0
    stage.record(
        flow(calm(token_seconds=step(onset, 0.02, 0.034), requests_per_second=0.1), stage.seconds),
        "ollama:11434",
    )
    # 903,158 µs of software thermal slow-down and 165,687 µs of power capping, all of them counted by the end.
    board = Board(node="ollama", model="NVIDIA GeForce RTX 3090", celsius=step(onset, 79.0, 81.0), utilization=constant(0.92), clock_mhz=step(onset, 1860.0, 1850.0),
                  max_clock_mhz=2100.0, power_watts=constant(310.0), limit_watts=constant(350.0),
                  thermal_ratio=constant(0.903158 / 2400.0), power_ratio=constant(0.165687 / 2400.0))  # fmt: skip
    smi(stage, board)
    return stage.bundle()


def _airflow() -> Bundle:
    stage = Stage()
    onset = 1200.0
    soak = points((0.0, 74.0), (900.0, 84.0), (onset, 90.0), (2400.0, 91.0))
    slow = points((0.0, 1.0), (onset, 1.0), (onset + 200.0, 2.3), (2400.0, 2.4))
    tokens = points(*((time, 0.03 * value) for time, value in zip(slow.times, slow.values, strict=True)))
    stage.record(flow(calm(requests_per_second=0.06, token_seconds=tokens), stage.seconds), "gpu-0:8080")
    board = Board(model="NVIDIA RTX A4000", celsius=soak, clock_mhz=points((0.0, 1440.0), (onset, 1440.0), (onset + 200.0, 628.0), (1800.0, 628.0), (1830.0, 375.0), (1860.0, 628.0)),
                  max_clock_mhz=1560.0, power_watts=points((onset, 92.0), (onset + 200.0, 66.0), (2400.0, 65.0)), limit_watts=constant(100.0),
                  thermal_ratio=points((onset, 0.0), (onset + 100.0, 0.96), (2400.0, 0.97)))  # fmt: skip
    smi(stage, board)
    return stage.bundle()


def _owners_cap() -> Bundle:
    stage = Stage()
    onset = 1320.0
    traffic = calm(requests_per_second=0.05, output_tokens=400.0, token_seconds=step(onset, 1 / 36.35, 1 / 25.15), cached_ratio=0.0,
                   prefill_tokens_per_second=step(onset, 1_500.0, 1_040.0))  # fmt: skip
    serve(stage, traffic)
    for index in range(2):
        smi(stage, Board(index=index, model="NVIDIA GeForce RTX 3090", utilization=constant(0.93), clock_mhz=step(onset, 1740.0, 1180.0), max_clock_mhz=2100.0,
                         power_watts=step(onset, 326.0, 229.5), limit_watts=step(onset, 330.0, 230.0), celsius=step(onset, 68.0, 60.0),
                         power_ratio=step(onset, 0.45, 0.98)))  # fmt: skip
    return stage.bundle()


def _boost_ends() -> Bundle:
    stage = Stage()
    busy = 1200.0
    traffic = calm(requests_per_second=step(busy, 0.2, 0.45), token_seconds=step(busy, 0.022, 0.024))
    made = serve(stage, traffic)
    board = Board(model="NVIDIA H200", clock_mhz=step(busy, 1830.0, 1500.0), power_watts=step(busy, 520.0, 697.0), power_ratio=step(busy, 0.05, 0.9),
                  utilization=step(busy, 0.6, 0.99), celsius=step(busy, 55.0, 63.0))  # fmt: skip
    machine(stage, made, board=board, gpus=4)
    return stage.bundle()


def _two_engines() -> Bundle:
    stage = Stage()
    down, up = 1140.0, 1230.0
    traffic = calm(
        requests_per_second=0.45, prompt_tokens=3_000.0, output_tokens=400.0, down=((down, up),), pool_tokens=40_000.0,
        queue_seconds=points((up, 0.01), (up + 150.0, 6.0), (2400.0, 9.0)), token_seconds=step(up, 0.022, 0.03),
    )  # fmt: skip
    used = points((0.0, 0.42), (up, 0.4), (up + 60.0, 0.97), (2400.0, 0.985))
    page = Page(
        gauges={"kv": used}, preemptions_per_second=step(up + 60.0, 0.0, 0.3),
        config={"num_gpu_blocks": "2410", "block_size": "16", "enable_prefix_caching": "True"},
        config_after={"num_gpu_blocks": "940", "block_size": "16", "enable_prefix_caching": "True"},
    )  # fmt: skip
    serve(stage, traffic, page)
    board = Board(
        model="NVIDIA GeForce RTX 5090",
        used_bytes=step(up, 2.6e10, 3.2e10),
        reasons=True,
        limit_watts=constant(575.0),
        power_watts=constant(420.0),
    )
    smi(stage, board)
    apps = {"uuid": board.uuid, "instance": "gpu-0:9835", "job": "nvidia_gpu_exporter"}
    for pid, share in ((3100, 1.5e10), (3177, 1.1e10)):
        stage.put(
            "gpu",
            "nvidia_smi_compute_app_used_memory_bytes",
            {**apps, "pid": str(pid), "process_name": "VLLM::EngineCore"},
            stage.noisy(share, 0.0),
        )
    host(stage, Host())
    for at, memory, blocks in ((-7200.0, 4.72, 38_560), (up - 60.0, 1.84, 15_040)):
        started(
            stage,
            "vllm",
            {"gpu_memory_utilization": 0.45},
            f"Available KV cache memory: {memory} GiB",
            f"GPU KV cache size: {blocks:,} tokens",
            at=at,
        )
    return stage.bundle()


def _no_bridge() -> Bundle:
    stage = Stage()
    serve(stage, calm(token_seconds=0.03))
    for index in range(2):
        board = Board(
            index=index,
            utilization=constant(0.5),
            model="NVIDIA A10",
            clock_mhz=constant(1695.0),
            max_clock_mhz=1695.0,
            power_watts=constant(90.0),
            limit_watts=constant(150.0),
        )
        dcgm(stage, board)
    host(stage, Host())
    started(stage, "vllm", {"tensor_parallel_size": 2})
    return stage.bundle()


def _dead_fabric() -> Bundle:
    stage = Stage()
    down, up = 1200.0, 1320.0
    traffic = calm(
        requests_per_second=0.06,
        output_tokens=150.0,
        token_seconds=step(up, 0.02, 0.25),
        prefill_tokens_per_second=step(up, 8_000.0, 600.0),
        down=((down, up),),
    )
    made = serve(stage, traffic)
    links = {"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": constant(0.0), "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": constant(0.0),
             "DCGM_FI_PROF_NVLINK_TX_BYTES": step(up, 4.1e10, 0.0), "DCGM_FI_PROF_PCIE_TX_BYTES": step(up, 6.0e8, 2.1e10)}  # fmt: skip
    board = Board(
        model="NVIDIA B300",
        utilization=step(up, 0.8, 1.0),
        power_watts=step(up, 640.0, 300.0),
        limit_watts=constant(1100.0),
        more=links,
    )
    machine(stage, made, board=board, gpus=4)
    started(stage, "vllm", {"tensor_parallel_size": 8}, at=up - 60.0)
    return stage.bundle()


GPU_HEALTH = (
    Reconstructed(
        "GPU-HBM-62", _HARDWARE, "wtdcode/vllm-backport#62", "reporter-confirmed",
        "Xid 48, 63, 94, 154 at 15:17 and 15:37, always PCI 0000:9c:00 (GPU 2 of 4); remapped rows 11 to 12; RPC call to "
        "sample_tokens timed out.",
        "the day, seven minutes to restart, the traffic, the other GPUs, host.",
        Label("gpu_hardware_fault", "one PCI id in every Xid, rows being remapped",
              must_not=("spec_decode_collapse", "fabric_flap", "thermal_throttle"), onset_seconds=1020.0),
        _failing_memory,
    ),
    Reconstructed(
        "GPU-XID31-EXIT0-53726", _HARDWARE, "vllm-project/vllm#53726", "likely",
        "an Xid 31 at 19:41:00 (GPC3, FAULT_PDE); the server goes quietly with exit status 0 and is not started again.",
        "traffic before, the GPU idle after; no other Xid inside the window.",
        Label("engine_restart", "a software fault ends the process; nobody starts it again", accept=("unknown", "engine_stall"),
              must_not=("gpu_hardware_fault", "thermal_throttle"), onset_seconds=2400.0),
        _exit_zero,
    ),
    Reconstructed(
        "GPU-XID31-UNREC-3869", _HARDWARE, "flashinfer-ai/flashinfer#3869", "reporter-confirmed",
        "19:14:43 Xid 13, then Xid 31 on eight GPUs within five seconds (19:15:34 to 39); driver loaded again at 19:24.",
        "five of the eight PCI addresses, the traffic, host.",
        Label("engine_restart", "all at once is software, not eight GPUs that fail; the node goes down with it", accept=("unknown",),
              must_not=("gpu_hardware_fault",), onset_seconds=1783.0),
        _whole_node,
    ),
    Reconstructed(
        "GPU-ECCSTALL-1748", _HARDWARE, "NVIDIA/NVSentinel#1748", "reporter-confirmed",
        "XID 45 counts of the rack (suspect 11,760, fourth of 18; others 1,120 to 13,104), nothing else; collector calls stall.",
        "six of 18 nodes; scrapes of the suspect take 9.8 s and fail half the time from 1,100 s on; a healthy service.",
        Label("telemetry_fault", "what is seen is a collector that stalls; the degrading GPU behind it is not in the data",
              accept=(None, "unknown", "gpu_hardware_fault"), must_not=("engine_restart", "engine_stall"), keep_open=("gpu_hardware_fault",)),
        _stalled_collector,
    ),
    Reconstructed(
        "GPU-HIDDEN-GB10", _HARDWARE, "tonyd2wild/DeepSeek-V4.1-Flash-vLLM-DGX-Spark#1", "reporter-confirmed",
        "70 to 77 against about 50 tokens/s (63 and 94 ms a step), clocks 2,164 to 2,190 MHz and no throttle reason in either.",
        "watts (52, then 34 on one card and 47 on its peers), the moment, the traffic.",
        Label("slow_gpu", "power out of line at an equal clock, flags clean", must_not=("thermal_throttle", "power_cap", "config_change"),
              onset_seconds=1290.0),
        _hidden_state,
    ),
    Reconstructed(
        "GPU-THERM-13552", _HARDWARE, "ollama/ollama#13552", "unresolved",
        "all throttle reasons inactive; counters 903,158 µs thermal and 165,687 µs power; 81 °C, 13 °C of margin.",
        "that it was faster before 1,200 s, the counters' growth over the window, clients' records.",
        Label("unknown", "0.9 s of thermal slow-down explains no lasting slowness", accept=(None,), undecided=True,
              must_not=("thermal_throttle", "power_cap")),
        _flags_off,
    ),
    Reconstructed(
        "GPU-AIRFLOW-100", _HARDWARE, "rammsguns/llm-rig#100", "reporter-confirmed",
        "a 100 W cap, 375 MHz at the least and 628 MHz sustained, and it is still hot.",
        "temperatures (74 to 91 °C), watts (92, then 66), thermal share, clients' records of llama.cpp.",
        Label("thermal_throttle", "clock low, temperature at its limit, power below the cap", must_not=("power_cap",), onset_seconds=1200.0),
        _airflow,
    ),
    Reconstructed(
        "GPU-POWER-58", _HARDWARE, "noonghunna/club-3090#58", "maintainer-confirmed",
        "25.15 tokens/s at 230 W, 36.35 at 330 W.",
        "both in one window, the limit lowered at 1,320 s; clocks, watts, temperatures, prefill in the same ratio.",
        Label("power_cap", "the owner's power limit", must_not=("context_growth", "thermal_throttle"), onset_seconds=1320.0),
        _owners_cap,
    ),
    Reconstructed(
        "GPU-H200CLOCK-1587", _HARDWARE, "tile-ai/TileOPs#1587", "maintainer-confirmed",
        "an H200 cannot hold 1,830 MHz at 700 W; 1,500 MHz is sustained.",
        "a busier half hour from 1,200 s on, tokens 9 % slower, peers equal.",
        Label(None, "a power-limited boost at full load is normal", accept=("unknown",), must_not=("power_cap", "thermal_throttle")),
        _boost_ends,
    ),
    Reconstructed(
        "GPU-TWOINST-55827", _HARDWARE, "vllm-project/vllm#55827", "reporter-confirmed",
        "KV memory 4.72 GiB when started alone, 1.84 GiB when two engines start together on one RTX 5090.",
        "the restart at 1,140 s, blocks from the memory, queueing and preemptions after it, the other engine's memory.",
        Label("kv_cache_exhaustion", "two engines share a card and one is left with too small a pool",
              accept=("noisy_neighbour", "config_change", "engine_restart"), must_not=("host_memory_leak", "kv_block_leak"),
              onset_seconds=1140.0),
        _two_engines,
    ),
    Reconstructed(
        "GPU-NOP2P-4238", _LINKS, "vllm-project/vllm#4238", "maintainer-confirmed",
        "TP 2 uses 50 % of both GPUs and gains nothing over one.",
        "everything else; it was so from the start.",
        Label("gpu_link_degraded", "all-reduce crosses the CPU; nothing changes and no link counter shows it", accept=(None, "unknown"),
              must_not=("load_burst",)),
        _no_bridge,
    ),
    Reconstructed(
        "GPU-FABRIC-1167", _LINKS, "Dstack-TEE/dstack#1167", "likely",
        "18 links active, fabric configured, P2P dead: 10 to 100 times slower, nothing errors.",
        "a restart at 1,200 s after which tokens take 12.5 times longer; NVLink bytes 0, PCIe bytes high, low power.",
        Label("gpu_link_degraded", "collectives fall back to PCIe", accept=("unknown", "engine_restart"), must_not=("slow_gpu",), onset_seconds=1320.0),
        _dead_fabric,
    ),
)  # fmt: skip
