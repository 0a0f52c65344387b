"""What can go wrong inside the engine: for each of its own causes a scene for it, and one against it."""

from __future__ import annotations

import numpy as np

from diag.model import Event, Fact

from .conftest import AT, CALM, GPU, POINTS, START, World
from .scenes import during, seven_times_the_rate, speaks_against, speaks_for, two_run_and_eight_wait

ENGINE = {
    "prefill_interference", "oversized_request", "engine_stall", "kv_block_leak", "cuda_graph_gap",
    "spec_decode_collapse", "grammar_stall", "port_conflict",
}  # fmt: skip
_TOKENS = ("first_tokens_per_second", "finished_requests_per_second", "http_requests_per_second",
           "prompt_tokens_per_second", "generation_tokens_per_second")  # fmt: skip

noise = np.random.default_rng(7).normal(0.0, 1.0, POINTS)


def nothing_is_made(w: World, running: float, waiting: float) -> None:
    """From the onset on no token comes, and these many requests are held."""
    w.goes("generation_tokens_per_second", 50.0, 50.0)
    for name in _TOKENS:
        w.values(name, np.where(during, 0.0, w.series[name, "e0"].values))
    for name in CALM:
        if name.endswith(("_seconds_mean", "_seconds_p50", "_seconds_p95")):
            w.values(name, np.where(during, np.nan, w.series[name, "e0"].values))
    w.values("running_requests", np.where(during, running, 4.0))
    w.values("waiting_requests", np.where(during, waiting, 0.0))
    w.clients("before")
    w.clients("during", every=10.0, ttft_seconds=None, duration_seconds=None, status=None, output_tokens=None)


@speaks_for("engine_stall", "silent")
@speaks_against("oversized_request")
def a_batch_that_stands_still(w: World) -> None:
    nothing_is_made(w, running=5.0, waiting=30.0)
    w.values("gpu_utilization_ratio", np.where(during, 1.0, 0.7), **GPU)
    w.goes("gpu_power_watts", 600.0, 180.0, **GPU)
    w.states("max_model_len_tokens", "8192")
    w.states("kv_capacity_tokens", "50000")


@speaks_for("oversized_request", "blocked")
@speaks_against("engine_stall")
def a_prompt_larger_than_the_pool(w: World) -> None:
    nothing_is_made(w, running=0.0, waiting=12.0)
    w.values("kv_cache_usage_ratio", np.where(during, 0.0, 0.2))
    w.states("max_model_len_tokens", "131072")
    w.states("kv_capacity_tokens", "50000")
    w.rows.append(
        {"ts": w.onset, "session": "archive", "tenant": "t0", "prompt_tokens": 70_000, "instance": "e0"}
    )


@speaks_for("kv_block_leak", "idle")
def a_floor_that_only_rises(w: World) -> None:
    quiet = np.arange(POINTS) % 10 < 2
    leaked = np.maximum(np.arange(POINTS) - AT + 10, 0) * 0.0085
    w.values("running_requests", np.where(quiet, 0.0, 4.0))
    w.values("waiting_requests", np.where(during & ~quiet, 6.0, 0.0))
    w.values("kv_cache_usage_ratio", np.minimum(np.where(quiet, 0.0, 0.2) + leaked, 1.0))
    w.slow(phase="queue")
    w.clients("before")
    w.clients("during", ttft_seconds=3.0, duration_seconds=5.0)


@speaks_against("kv_block_leak")
def a_pool_that_empties(w: World) -> None:
    seven_times_the_rate(w)
    quiet = np.arange(POINTS) % 10 < 2
    for name, busy in (("running_requests", 16.0), ("waiting_requests", 30.0), ("kv_cache_usage_ratio", 0.8)):
        w.values(name, np.where(quiet, 0.0, np.where(during, busy, 0.2 if name.startswith("kv") else 3.0)))


@speaks_for("cuda_graph_gap", "step")
def a_batch_beyond_the_captured_size(w: World) -> None:
    running = np.where(during, 38.0, 22.0) + 6.0 * np.sin(np.arange(POINTS) / 3.0)
    w.values("running_requests", running)
    pace = (0.015 + 0.0002 * running) * np.where(running > 32, 2.4, 1.0) * np.exp(0.02 * noise)
    w.values("inter_token_seconds_mean", pace)
    w.turns(e2e_seconds_mean=5.0, decode_seconds_mean=4.8)
    w.values("gpu_sm_clock_hertz", np.full(POINTS, 1.98e9), **GPU)
    w.states("cuda_graphs", "on")
    w.states("cuda_graph_tokens_max", "32")
    w.clients("before")
    w.clients("during", duration_seconds=5.0)


@speaks_against("cuda_graph_gap", "prefill_interference", "spec_decode_collapse", "grammar_stall")
def every_batch_is_slower_and_never_had_graphs(w: World) -> None:
    running = 12.0 + 6.0 * np.sin(np.arange(POINTS) / 3.0)
    w.values("running_requests", running)
    w.values("inter_token_seconds_mean", (0.015 + 0.0002 * running) * np.where(during, 2.2, 1.0))
    w.values("inter_token_seconds_p99", 0.03 + 0.0002 * noise)
    w.goes("computed_prompt_tokens_per_second", 400.0, 400.0)
    w.goes("spec_decode_acceptance_ratio", 0.7, 0.7)
    w.states("cuda_graphs", "off")
    w.turns(e2e_seconds_mean=5.0, decode_seconds_mean=4.8)
    w.clients("before", structured=0)
    w.clients("during", structured=0, duration_seconds=5.0)


@speaks_for("spec_decode_collapse", "acceptance")
def drafts_are_refused(w: World) -> None:
    w.goes("spec_decode_acceptance_ratio", 0.75, 0.15)
    w.goes("spec_decode_accepted_length_tokens", 3.2, 1.4)
    w.turns(e2e_seconds_mean=4.6, decode_seconds_mean=4.4)
    w.clients("before")
    w.clients("during", duration_seconds=4.6)


@speaks_for("grammar_stall", "structured")
def schemas_are_compiled(w: World) -> None:
    stalls = during & (np.arange(POINTS) % 8 < 2)
    w.values(
        "inter_token_seconds_mean",
        np.where(stalls, 0.12, 0.03) * np.exp(0.05 * noise) * np.where(during, 1, 0.7),
    )
    w.values("inter_token_seconds_p99", np.where(stalls, 0.9, 0.05) * np.exp(0.05 * noise))
    w.turns(e2e_seconds_mean=5.0, decode_seconds_mean=4.8)
    w.goes("engine_cpu_ratio", 0.5, 0.9)
    w.clients("before", structured=0)
    stalled = {int(at) for at in np.flatnonzero(stalls)}

    def lasts(i: int) -> float:
        at = AT + 2.0 * i / 5.0
        return 5.2 if stalled & {round(at), round(at) + 1} else 2.2

    w.clients("during", structured=0, duration_seconds=lasts)
    for at in np.flatnonzero(stalls):
        for i in range(3):
            w.rows.append({"ts": START + 5.0 * at - 4.0 + i, "session": f"s{at}-{i}", "structured": 1,
                           "prompt_tokens": 700, "cached_tokens": 480, "output_tokens": 100, "instance": "e0",
                           "ttft_seconds": 0.2, "duration_seconds": 5.0, "status": "ok"})  # fmt: skip


@speaks_for("prefill_interference", "in_step")
def long_prompts_share_the_steps(w: World) -> None:
    long = during & (np.arange(POINTS) % 8 < 3)
    w.values("computed_prompt_tokens_per_second", np.where(long, 9000.0, 400.0) * np.exp(0.05 * noise))
    w.values("inter_token_seconds_mean", np.where(long, 0.09, 0.02) * np.exp(0.05 * noise))
    w.values("inter_token_seconds_p99", np.where(long, 0.9, 0.04) * np.exp(0.05 * noise))
    w.turns(e2e_seconds_mean=4.4, decode_seconds_mean=4.2)
    w.states("chunked_prefill", "off")
    w.clients("before")
    w.clients("during", duration_seconds=4.4)


@speaks_for("port_conflict", "bind")
def the_port_is_taken(w: World) -> None:
    w.slow(phase="queue")
    down = during & (np.arange(POINTS) < AT + 50)
    w.values("target_up", np.where(down, 0.0, 1.0))
    w.values(
        "engine_start_time_seconds", np.where(during, np.where(down, np.nan, w.onset + 240), START - 9000)
    )
    for i in range(5):
        text = (
            "[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use"
        )
        w.events.append(Event(w.onset + 10 + 40 * i, "bind_failure", "e0", text, marked=False))
    w.clients("before")
    w.clients("during", status=lambda i: "error" if i < 120 else "ok", ttft_seconds=3.0)


@speaks_against("port_conflict")
def it_is_bound_and_serves(w: World) -> None:
    two_run_and_eight_wait(w)
    w.facts.append(Fact("max_num_seqs", "2", {"instance": "e0"}, "log", since=START))
