"""Family H: fabrics, KV stores, and requests that never fit."""

from __future__ import annotations

from diag.simulate.parts import Bundle
from diag.simulate.profiles import constant, pulses, step
from diag.simulate.reconstructed.case import Label, Reconstructed
from diag.simulate.reconstructed.engine_pages import Page
from diag.simulate.reconstructed.flow import Ask
from diag.simulate.reconstructed.lines import vllm_line
from diag.simulate.reconstructed.machine_pages import Host
from diag.simulate.reconstructed.service import calm, machine, points, serve, started
from diag.simulate.reconstructed.stage import Stage

__all__ = ["TRANSFERS"]

_FAMILY = "H network-kv"
_PORT = {"device": "mlx5_32", "port": "1"}


def _port_flap() -> Bundle:
    stage = Stage(start=1_758_121_200.0)  # 2025-09-17 15:00:00
    error, active, again = 983.0, 991.0, 1414.0
    died = again + 17.0
    made = serve(stage, calm(down=((died, died + 240.0),)), Page(host="prefill-2:8000"))
    counters = {
        "node_infiniband_link_downed_total": (_PORT, pulses((975.0, 1410.0), 15.0, 0.0, 1 / 15)),
        "node_infiniband_port_errors_received_total": (_PORT, pulses((975.0, 1410.0), 30.0, 0.0, 2.0)),
        "node_infiniband_link_error_recovery_total": (_PORT, pulses((975.0, 1410.0), 15.0, 0.0, 1 / 15)),
    }
    machine(stage, made, node=Host(node="prefill-2", counters=counters))
    labels = {"instance": "prefill-2:9100", "job": "node", **_PORT}
    state = points(
        (error, 4.0),
        (error, 1.0),
        (active, 1.0),
        (active, 4.0),
        (again, 4.0),
        (again, 1.0),
        (died + 100.0, 1.0),
        (died + 100.0, 4.0),
    )
    stage.put("node", "node_infiniband_state_id", labels, state.over(stage.times))
    for at, clock, what in (
        (error, "15:16:23", "error"),
        (active, "15:16:31", "active"),
        (again, "15:23:34", "error"),
    ):
        text = f"prefill-2:311:405 [0] transport/net_ib.cc:199 NCCL WARN NET/IB : mlx5_32:1 Got async error event: port {what}"
        stage.say("prefill-2", at, f"[2025-09-17 {clock}] {text}")
    for rank in (3, 5):
        text = f"(Worker_TP{rank} pid=311) " + vllm_line(
            stage, died, "WorkerProc hit an exception.", level="ERROR", source="multiproc_executor.py:596"
        )
        stage.say("prefill-2", died, text)
    started(
        stage,
        "prefill-2",
        {"kv_transfer_config": {"kv_connector": "NixlConnector", "kv_role": "kv_producer"}},
        at=died + 150.0,
    )
    return stage.bundle()


def _sockets() -> Bundle:
    stage = Stage()
    restart = 1200.0
    made = serve(stage, calm(token_seconds=0.04), Page(resets=(restart,)))
    machine(stage, made, gpus=2)
    for at, text in ((-7000.0, "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"),
                     (restart - 30.0, "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA")):  # fmt: skip
        stage.say("vllm", at, vllm_line(stage, at, text, source="pynccl.py:63"))
    return stage.bundle()


def _lost_metadata() -> Bundle:
    stage = Stage(start=1_744_601_400.0)  # 2025-04-14 03:30:00
    restart = 1500.0
    traffic = calm(
        prompt_tokens=6_000.0, cached_ratio=step(restart, 0.7, 0.03), prefill_tokens_per_second=step(restart, 6_000.0, 3_500.0),
        queue_seconds=points((restart, 0.01), (restart + 90.0, 1.5), (2400.0, 2.0)),
    )  # fmt: skip
    page = Page(counters={"sglang:num_transfer_failed_reqs_total": ({}, step(restart, 0.0, 0.2))})
    made = serve(stage, traffic, page, engine="sglang", turns=8)
    machine(stage, made)
    # The first of these lines stands at 03:56:41, 1,601 s into the window.
    stage.say(
        "sglang",
        1598.0,
        "[2025-04-14 03:56:38 TP0] Prefill batch. #new-seq: 1, #new-token: 10, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, ",
    )
    key = "mooncake%2Fram%2Fpeer_58f33e4e-7c3e-443f-97b8-ec267c066c4f"
    for n in range(60):
        at = 1601.0 + 13.0 * n
        minute, second = divmod(int(at) + 30 * 60, 60)
        clock = f"{3 + minute // 60:02d}:{minute % 60:02d}:{second:02d}"
        stage.say("sglang", at, f'[2025-04-14 {clock}] INFO: "GET /metadata?key={key} HTTP/1.1" 404 185')
        stage.say(
            "sglang",
            at,
            f"E0414 {clock}.856248 77969 transfer_metadata_plugin.cpp:173] Unexpected code in http response, GET http://meta:8998/metadata?key={key} response code: 404 response body: metadata not found",
        )
        stage.say(
            "sglang",
            at,
            f"W0414 {clock}.856264 77969 transfer_metadata.cpp:153] Failed to retrieve segment descriptor, name peer_58f33e4e-7c3e-443f-97b8-ec267c066c4f",
        )
    stage.event(restart, "restart", "mooncake-master", "mooncake_master restarted")
    return stage.bundle()


def _over_budget() -> Bundle:
    stage = Stage(seconds=1200.0, step_seconds=10.0)
    onset = 600.0
    small = tuple(Ask(-500.0 + 40.0 * n, 40, 20) for n in range(27))
    large = tuple(
        Ask(onset + 75.0 * n, 210, 32, queue_seconds=1e6, leaves_after_seconds=60.0) for n in range(8)
    )
    traffic = calm(requests_per_second=0.0, token_seconds=0.02, pool_tokens=96.0, asks=(*small, *large))
    made = serve(stage, traffic, Page(), engine="sglang", records=False)
    stage.record(made, "gpu-0:8000")
    machine(stage, made)
    startup = "max_total_num_tokens=96, chunked_prefill_size=2048, max_prefill_tokens=16384, max_running_requests=48, context_len=4096"
    stage.say("sglang", -3000.0, f"[2026-06-01 11:10:00] {startup}")
    return stage.bundle()


def _expired_lease() -> Bundle:
    stage = Stage()
    onset = 1320.0
    backlog = points((onset, 0.05), (onset + 300.0, 150.0), (2400.0, 260.0))
    for host, queue, held in (("prefill-0:8000", constant(0.02), 0.3), ("decode-0:8000", backlog, 0.99)):
        decode = host.startswith("decode")
        page = Page(
            host=host,
            gauges={"kv": step(onset + 240.0, 0.6, held) if decode else constant(held)},
            counters={} if decode else {
                "vllm:nixl_num_kv_expired_reqs_total": ({}, step(onset + 200.0, 0.0, 0.4)),
                "vllm:nixl_num_failed_transfers_total": ({}, constant(0.0)),
            },
        )  # fmt: skip
        traffic = calm(
            requests_per_second=step(onset, 0.3, 0.5),
            queue_seconds=queue,
            output_tokens=400.0 if decode else 1.0,
            prompt_tokens=3_000.0,
        )
        serve(stage, traffic, page, records=decode)
    return stage.bundle()


TRANSFERS = (
    Reconstructed(
        "NET-RDMAFLAP-191", _FAMILY, "llm-d/llm-d#191", "maintainer-confirmed",
        "the NCCL lines of mlx5_32:1 at 15:16:23 (port error), 15:16:31 (active) and 15:23:34 (error); the workers raise 17 s later.",
        "node_exporter's counters of that port, four minutes to restart, the traffic, GPU.",
        Label("fabric_flap", "the port's flap kills the engine", must_not=("gpu_hardware_fault", "host_memory_leak"), onset_seconds=1414.0),
        _port_flap,
    ),
    Reconstructed(
        "NET-SOCKET-6610", _FAMILY, "vllm-project/vllm#6610", "reporter-confirmed",
        "NCCL on sockets until the container was privileged, then on RDMA; throughput the same.",
        "the change at 1,200 s as an orderly restart; a pipeline-parallel service with 40 ms a token.",
        Label(None, "true, and not the bottleneck", accept=("unknown",), must_not=("network_latency", "fabric_flap", "kv_transfer_failure")),
        _sockets,
    ),
    Reconstructed(
        "NET-MOONCAKE-2246", _FAMILY, "kvcache-ai/Mooncake#2246", "maintainer-confirmed",
        "404 on /metadata and no segment descriptor at 03:56:41 after the master lost its memory in a restart.",
        "the restart at 03:55, the same lines every 13 s, hits 70 to 3 %, failed transfers, traffic, GPU, host.",
        Label("stale_cache_peer", "metadata of live peers is gone and not written again", accept=("kv_transfer_failure",),
              must_not=("network_latency", "prefix_cache_broken"), onset_seconds=1500.0),
        _lost_metadata,
    ),
    Reconstructed(
        "NET-OVERBUDGET-9230", _FAMILY, "ai-dynamo/dynamo#9230", "maintainer-confirmed",
        "a KV budget of 96 tokens, a prompt above it, no log line, the client gives up after 60 s.",
        "small requests that fit, before; eight of 210 tokens from 600 s on; the start-up line around the posted 96.",
        Label("oversized_request", "queued silently because it can never fit", must_not=("engine_restart",), onset_seconds=600.0),
        _over_budget,
    ),
    Reconstructed(
        "NET-PTIMEOUT-21570", _FAMILY, "vllm-project/vllm#21570", "maintainer-confirmed",
        "the prefill side frees blocks on a timeout while decode has a backlog; answers are wrong, not slow alone.",
        "a backlog of up to 260 s from 1,320 s on, 0.4 expiries a second, both engines' pages.",
        Label("kv_transfer_failure", "leases expire under a decode backlog", accept=("load_burst", "kv_cache_exhaustion"), onset_seconds=1320.0),
        _expired_lease,
    ),
)  # fmt: skip
