"""Family I: engines that fall off a cliff of their own configuration, or just stop."""

from __future__ import annotations

from diag.simulate.parts import Bundle
from diag.simulate.profiles import Profile, constant, spells, step
from diag.simulate.reconstructed.case import Label, Reconstructed
from diag.simulate.reconstructed.engine_pages import Page
from diag.simulate.reconstructed.flow import Ask, flow
from diag.simulate.reconstructed.lines import vllm_line
from diag.simulate.reconstructed.machine_pages import Board
from diag.simulate.reconstructed.service import calm, machine, points, serve, started
from diag.simulate.reconstructed.stage import Stage

__all__ = ["ENGINE_CONFIG"]

_FAMILY = "I engine-config"


def _capture_size() -> Bundle:
    stage = Stage()
    alone = tuple(
        Ask(at, 2_000, 700, queue_seconds=0.0) for at in (-300.0, -200.0, *(60.0 * n for n in range(20)))
    )
    # The second of a pair makes 64 steps of 2.6 s; once it has gone the first is fast again.
    pairs = tuple(
        Ask(1230.0 + 240.0 * n + gap, 2_000, count, queue_seconds=0.0)
        for n in range(5)
        for gap, count in ((0.0, 600), (8.0, 180))
    )
    overlaps = tuple((1238.0 + 240.0 * n, 1404.0 + 240.0 * n) for n in range(5))
    traffic = calm(
        requests_per_second=0.0,
        tokens_per_step=2.8,
        token_seconds=spells(overlaps, 0.1, 2.6),
        asks=(*alone, *pairs),
        cached_ratio=0.0,
    )
    rates = {"drafts": 1.0, "draft_tokens": 3.0, "accepted_tokens": 1.8}
    counters: dict[str, tuple[dict[str, str], Profile]] = {
        f"vllm:spec_decode_num_{name}_total": ({}, spells(overlaps, 10.0 * rate, 0.75 * rate))
        for name, rate in rates.items()
    }
    made = serve(stage, traffic, Page(counters=counters))
    machine(stage, made, board=Board(model="NVIDIA GB10", limit_watts=constant(100.0), reasons=False))
    settings = {"max_num_seqs": 6, "speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}
    started(stage, "vllm", settings, "GPU KV cache size: 400,000 tokens")
    text = "Truncating max_cudagraph_capture_size to 4"
    stage.say("vllm", -7100.0, vllm_line(stage, -7100.0, text, level="WARNING", source="vllm.py:1719"))
    return stage.bundle()


def _bistable() -> Bundle:
    stage = Stage()
    burst, end = 1260.0, 1305.0
    traffic = calm(
        requests_per_second=spells(((burst, end),), 2.2, 5.0), output_tokens=400.0, prompt_tokens=500.0,
        token_seconds=points((0.0, 0.02), (burst + 15.0, 0.02), (end, 0.08), (2400.0, 0.08)),
    )  # fmt: skip
    page = Page(
        counters={
            "sglang:cuda_graph_passes_total#g": ({"mode": "decode_cuda_graph"}, step(end, 50.0, 0.0)),
            "sglang:cuda_graph_passes_total#n": ({"mode": "decode_none"}, step(end, 0.0, 12.5)),
        },
        more={"sglang:num_retracted_reqs": ({}, constant(0.0))},
    )
    made = serve(stage, traffic, page, engine="sglang", records=False)
    machine(
        stage,
        made,
        board=Board(
            model="NVIDIA L40",
            limit_watts=constant(300.0),
            max_clock_mhz=2490.0,
            clock_mhz=constant(2205.0),
        ),
    )
    arguments = "server_args=ServerArgs(model_path='model', tp_size=1, disable_radix_cache=False, cuda_graph_max_bs=32, disable_cuda_graph=False)"
    stage.say("sglang", -3000.0, f"[2026-06-01 11:10:00] {arguments}")
    stage.say(
        "sglang",
        -2990.0,
        "[2026-06-01 11:10:10 TP0] max_total_num_tokens=400000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4096, context_len=32768",
    )
    return stage.bundle()


def _acceptance() -> Bundle:
    stage = Stage(start=1_733_997_600.0)  # 2024-12-12 10:00:00
    decay = points((0.0, 0.74), (900.0, 0.72), (1800.0, 0.36), (2400.0, 0.3))
    tokens = points((0.0, 0.016), (900.0, 0.0165), (1800.0, 0.027), (2400.0, 0.03))
    made = serve(
        stage,
        calm(token_seconds=tokens),
        Page(old=True, more={"vllm:spec_decode_draft_acceptance_rate": ({}, decay)}),
    )
    machine(stage, made)
    return stage.bundle()


def _aborted_grammar() -> Bundle:
    stage = Stage(seconds=2700.0, start=1_752_790_500.0)  # 2025-07-17 22:15:00
    stuck = 1847.0  # 22:45:47
    speed = step(stuck + 4.0, 1.0, 0.0)
    lost = Ask(stuck - 6.0, 300, 900, queue_seconds=0.0, leaves_after_seconds=6.0)
    later = Ask(stuck + 14.0, 280, 300, queue_seconds=0.0)
    traffic = calm(requests_per_second=step(stuck - 60.0, 0.03, 0.0), output_tokens=150.0, token_seconds=0.03, speed=speed,
                   abort_frees=False, pool_tokens=180_000.0, asks=(lost, later))  # fmt: skip
    after = points((stuck, 0.0), (stuck, 1.0), (2700.0, 1.0))
    page = Page(
        gauges={
            "running": after,
            "waiting": constant(0.0),
            "kv": points((stuck - 60.0, 0.001), (stuck, 0.002), (2700.0, 0.002)),
        }
    )
    made = serve(stage, traffic, page)
    machine(stage, made, board=Board(utilization=step(stuck, 0.3, 0.0), power_watts=step(stuck, 260.0, 90.0)))
    for at, source, text in (
        (1847.0, "async_llm.py:339", "Request chatcmpl-ca6de8da7d9644f69f4304590c5b4693 aborted."),
        (1850.0, "loggers.py:118", "Engine 000: Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 3.5 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.2%, Prefix cache hit rate: 0.0%"),
        (1860.0, "loggers.py:118", "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.2%, Prefix cache hit rate: 0.0%"),
        (1861.0, "logger.py:43", "Received request chatcmpl-0fc7ae25138246a2b6b525e6565e5600: guided_decoding=GuidedDecodingParams(json=None, regex=None, choice=None, grammar=None, json_object=True, backend=None)"),
    ):  # fmt: skip
        stage.say("vllm", at, vllm_line(stage, at, text, source=source))
    for n in range(1, 80):
        at = 1860.0 + 10.0 * n
        text = "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.2%, Prefix cache hit rate: 0.0%"
        stage.say("vllm", at, vllm_line(stage, at, text, source="loggers.py:118"))
    return stage.bundle()


def _closing_brace() -> Bundle:
    stage = Stage(seconds=3240.0)
    made = flow(
        calm(
            requests_per_second=0.027, prompt_tokens=8_000.0, output_tokens=500.0, token_seconds=0.02, seed=5
        ),
        stage.seconds,
    )
    stage.record(made, "gpu-0:8000", structured=1)
    stage.requests = stage.requests[:81]
    gaps = {17: 12.23, 38: 11.36, 55: 5.98, 71: 4.99}
    stage.requests = [
        {**record, "duration_seconds": round(record["duration_seconds"] + gaps.get(row, 0.0), 4)}
        if "duration_seconds" in record
        else record
        for row, record in enumerate(stage.requests)
    ]
    return stage.bundle()


def _compile_and_probe() -> Bundle:
    stage = Stage(seconds=3600.0, step_seconds=20.0)
    live, killed, second = 1080.0, 1500.0, 2160.0
    stall = (killed - 55.0, killed)
    traffic = calm(
        requests_per_second=0.3,
        speed=spells((stall,), 1.0, 0.0),
        down=((killed, second + 600.0),),
        prompt_tokens=5_000.0,
        output_tokens=2.0,
    )
    page = Page(host="prefill-0:8000", uptime_seconds=-live + 1_000.0 + live)
    serve(stage, traffic, page)
    stage.say(
        "prefill-0",
        killed - 50.0,
        vllm_line(stage, killed - 50.0, "Compiling kernel for new prompt shape", source="jit.py:41"),
    )
    stage.say(
        "prefill-0",
        killed,
        vllm_line(stage, killed, "KeyboardInterrupt: terminated", source="launcher.py:99"),
    )
    stage.say(
        "prefill-0",
        second,
        vllm_line(
            stage,
            second,
            "init_process_group timed out after 600000 milliseconds",
            level="ERROR",
            source="parallel_state.py:1020",
        ),
    )
    for at in (killed + 40.0, second + 40.0):
        started(stage, "prefill-0", {"tensor_parallel_size": 4}, at=at)
    stage.event(
        killed,
        "other",
        "prefill-0",
        "Liveness probe failed: timeout after 4s (failureThreshold 1); container killed",
    )
    return stage.bundle()


def _rising_queue() -> Bundle:
    stage = Stage()
    onset = 1320.0
    traffic = calm(requests_per_second=0.4, speed=step(onset, 1.0, 0.0))
    made = flow(traffic, stage.seconds)
    stage.record(made, "tgi-0:80")
    labels = {"instance": "tgi-0:80", "job": "tgi"}
    sent = made.running(stage.times)
    stage.put(
        "engine",
        "tgi_queue_size",
        labels,
        points((onset, 0.0), (2400.0, 0.4 * (2400.0 - onset))).over(stage.times).round(),
    )
    stage.put("engine", "tgi_batch_current_size", labels, sent.clip(0.0, 4.0))
    stage.target("engine", labels)
    return stage.bundle()


def _regression() -> Bundle:
    stage = Stage()
    deploy = 1260.0
    # 1,500 tokens a second before, 330 after.
    traffic = calm(
        requests_per_second=points((0.0, 1.5), (deploy, 1.5), (deploy, 0.33), (2400.0, 0.33)), output_tokens=1_000.0, prompt_tokens=700.0,
        token_seconds=step(deploy, 0.0425, 0.18), queue_seconds=points((deploy, 0.3), (deploy, 5.0), (2400.0, 6.5)), cached_ratio=0.0,
    )  # fmt: skip
    stage.record(flow(traffic, stage.seconds), "tgi-0:80")
    stage.event(deploy, "deploy", "tgi-0", "text-generation-inference 1.0.3 -> 1.1.0")
    return stage.bundle()


def _hard_stop() -> Bundle:
    stage = Stage(start=1_706_767_800.0)  # 2024-02-01 06:10:00
    stop = 1570.0
    traffic = calm(
        requests_per_second=0.4, prompt_tokens=1_000.0, output_tokens=300.0, token_seconds=0.295, cached_ratio=0.0, pool_tokens=45_000.0,
        speed=step(stop, 1.0, 0.0), queue_seconds=constant(290.0),
    )  # fmt: skip
    gauges = {
        "running": constant(35.0),
        "waiting": points((0.0, 115.0), (1565.0, 115.0), (2400.0, 115.0 + 0.4 * 835.0)),
        "kv": points((0.0, 0.97), (1565.0, 0.99), (2400.0, 0.99)),
    }
    serve(stage, traffic, Page(old=True, gauges=gauges), records=False)
    at = 1565.0
    text = (
        "Avg prompt throughput: 382.6 tokens/s, Avg generation throughput: 118.5 tokens/s, Max iteration time: 386.7 ms, Avg time/tok:149.4 ms, "
        "Running: 35 reqs, Swapped: 0 reqs, Pending: 115 reqs, GPU KV cache usage: 99.0%, CPU KV cache usage: 0.0%"
    )
    stage.say("vllm", at, _v0(stage, at, "llm_engine.py:921", text))
    stage.say(
        "vllm",
        at,
        _v0(
            stage, at, "async_llm_engine.py:110", "Finished request cmpl-90590e17ce6b4fa4b19f0812c0c98446-0."
        ),
    )
    for n in range(1, 160):
        at = 1565.0 + 5.0 * n
        text = (
            "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 35 reqs, Swapped: 0 reqs, "
            f"Pending: {115 + 2 * n} reqs, GPU KV cache usage: 99.0%, CPU KV cache usage: 0.0%"
        )
        stage.say("vllm", at, _v0(stage, at, "llm_engine.py:921", text))
    return stage.bundle()


def _v0(stage: Stage, at: float, source: str, text: str) -> str:
    return vllm_line(stage, at, text, source=source).replace(f"[{source}]", f"{source}]")


ENGINE_CONFIG = (
    Reconstructed(
        "ENG-CGRAPH-SPARK5", _FAMILY, "tonyd2wild/DeepSeek-V4.1-Flash-vLLM-2x-DGX-Spark#5", "reporter-confirmed",
        "6 sequences, 3 speculative tokens, the warning that the capture size is cut to 4; one request 15 to 40 tokens/s, two "
        "together well under 1 for the whole overlap; acceptance keeps printing.",
        "single requests (28 tokens/s, 2.8 tokens a step) until 1,230 s, then five pairs that overlap for 166 s; GPU, host.",
        Label("cuda_graph_gap", "a batch of two needs 8 tokens, graphs go to 4", must_not=("engine_stall", "kv_cache_exhaustion", "thermal_throttle"),
              onset_seconds=1238.0),
        _capture_size,
    ),
    Reconstructed(
        "ENG-CGRAPH-SGL-33900", _FAMILY, "sgl-project/sglang#33900", "reporter-confirmed",
        "cuda_graph_max_bs 32 against max_running_requests 4096; about four times the time per token after a burst, queue 0, "
        "throughput normal, it never recovers.",
        "2.2 requests a second, a burst of 45 s, 20 and 80 ms a token, passes without a graph, GPU, host.",
        Label("cuda_graph_gap", "above the largest captured batch decode runs eager, and that keeps the batch large",
              must_not=("load_burst", "host_memory_leak", "kv_block_leak"), onset_seconds=1275.0),
        _bistable,
    ),
    Reconstructed(
        "ENG-SPECACC-11188", _FAMILY, "vllm-project/vllm#11188", "unresolved",
        "the V0 gauge of draft acceptance falls over minutes on the same traffic; a restart every 15 minutes would be needed.",
        "74 to 30 % within 40 minutes, 16 to 30 ms a token, traffic, GPU, host.",
        Label("spec_decode_collapse", "why acceptance falls is open, that it falls and costs is measured", accept=("unknown",), undecided=True,
              must_not=("load_burst", "thermal_throttle"), onset_seconds=900.0),
        _acceptance,
    ),
    Reconstructed(
        "ENG-GRAMMAR-21148", _FAMILY, "vllm-project/vllm#21148", "unresolved",
        "an abort at 22:45:47, then running 1, waiting 0, 3.5 and 0.0 tokens/s, KV 0.2 %; a json_object request is received and "
        "does not move.",
        "light use before, the same line until the end, GPU at rest, host.",
        Label("engine_stall", "that it stands still is seen; why (grammar, abort) is not known", accept=("unknown",), undecided=True,
              must_not=("load_burst", "kv_cache_exhaustion"), onset_seconds=1847.0),
        _aborted_grammar,
    ),
    Reconstructed(
        "ENG-SPECTOOL-49002", _FAMILY, "vllm-project/vllm#49002", "unresolved",
        "gaps of 12.23, 11.36, 5.98 and 4.99 s in 4 of 81 requests, each before the closing brace of a tool call.",
        "81 clients' records in 54 minutes, lengths, speeds.",
        Label("unknown", "four streams of 81 stall, the thread ends in a suspicion", accept=(None,), undecided=True,
              must_not=("network_latency", "thermal_throttle", "gpu_hardware_fault")),
        _closing_brace,
    ),
    Reconstructed(
        "ENG-JITSTALL-14735", _FAMILY, "ai-dynamo/dynamo#14735", "maintainer-confirmed",
        "30 to 70 s of compilation at the first new shape, a liveness probe of 4 s with threshold 1, then 10 minutes of "
        "init_process_group and a second death.",
        "the moments, the traffic, the words of the log lines.",
        Label("engine_restart", "the probe kills it while it compiles; the second error is a consequence",
              must_not=("gpu_hardware_fault", "fabric_flap", "gpu_link_degraded"), onset_seconds=1445.0),
        _compile_and_probe,
    ),
    Reconstructed(
        "ENG-TGI-2192", _FAMILY, "huggingface/text-generation-inference#2192", "likely",
        "after a few hundred requests tgi_queue_size only rises and the batch does not move.",
        "0.4 requests a second, the stop at 1,320 s; clients' records and the two gauges.",
        Label("engine_stall", "no service at all, which no overload explains", accept=("unknown",), must_not=("load_burst",), onset_seconds=1320.0),
        _rising_queue,
    ),
    Reconstructed(
        "ENG-TGI-1227", _FAMILY, "huggingface/text-generation-inference#1227", "reporter-confirmed",
        "about 1,500 to 330 tokens/s at 64 at once from 1.0.3 to 1.1.0; queue 0.2 to 0.4 s, then up to 6.5 s.",
        "both in one window with the deploy as an event; 64 clients that wait for each other's answers; records only.",
        Label("config_change", "the deploy is the step", must_not=("load_burst",), onset_seconds=1260.0),
        _regression,
    ),
    Reconstructed(
        "ENG-HANG-2731", _FAMILY, "vllm-project/vllm#2731", "unresolved",
        "the last good V0 line (06:36:05: running 35, pending 115, KV 99.0 %, 118.5 tokens/s), then status lines without tokens "
        "while /health and /metrics answer.",
        "that it was as full and as slow before, the lines after it, the page.",
        Label("engine_stall", "the loop stands still; why is not known", accept=("unknown",), undecided=True,
              must_not=("load_burst",), onset_seconds=1570.0),
        _hard_stop,
    ),
)  # fmt: skip
