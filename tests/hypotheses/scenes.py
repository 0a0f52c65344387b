"""What can go wrong in the calm service: for each hypothesis a scene for it and one against it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from diag.model import Event, Window

from .conftest import AT, CALM, GPU, POINTS, Played, World

Scene = Callable[[World], None]
Play = Callable[[Scene], Played]
FOR: dict[str, Scene] = {}
AGAINST: dict[str, Scene] = {}
DRIVERS: dict[str, str] = {}
"""The cue without which the mechanism is impossible, by hypothesis."""

during = np.arange(POINTS) >= AT


def speaks_for(id: str, driver: str) -> Callable[[Scene], Scene]:
    def keep(scene: Scene) -> Scene:
        FOR[id], DRIVERS[id] = scene, driver
        return scene

    return keep


def speaks_against(*ids: str) -> Callable[[Scene], Scene]:
    def keep(scene: Scene) -> Scene:
        AGAINST.update(dict.fromkeys(ids, scene))
        return scene

    return keep


@speaks_for("context_growth", "growth")
@speaks_against("long_outputs", "engine_restart", "abandoned_requests")
def sessions_resend_all(w: World) -> None:
    w.slow(phase="prefill")
    w.turns(
        prompt_tokens_per_request_mean=9000, prompt_tokens_per_request_p99=20_000, kv_cache_usage_ratio=0.7
    )
    w.clients("before")

    def turn(i: int) -> int:
        return 800 + 900 * (i // 6)

    w.clients(
        "during", session=lambda i: f"old{i % 6}", prompt_tokens=turn, cached_tokens=lambda i: turn(i) // 2,
        ttft_seconds=lambda i: turn(i) / 4000, duration_seconds=lambda i: 2 + turn(i) / 4000,
    )  # fmt: skip


@speaks_for("load_burst", "rate")
@speaks_against(
    "context_growth", "head_of_line_blocking", "prefix_cache_off", "config_change", "host_cpu_starvation"
)
def seven_times_the_rate(w: World) -> None:
    w.slow(phase="queue")
    w.turns(first_tokens_per_second=3.5, waiting_requests=30, running_requests=16)
    w.states("prefix_caching", "on")
    w.states("cache_config", "block_size=16")
    w.clients("before")
    w.clients("during", every=2 / 7, ttft_seconds=3.0, duration_seconds=5.0)
    w.goes("node_cpu_busy_ratio", 0.3, 0.3, node="n0")


@speaks_for("kv_cache_exhaustion", "full")
@speaks_against("sequence_limit")
def the_pool_is_too_small(w: World) -> None:
    w.slow(phase="queue")
    w.turns(kv_cache_usage_ratio=0.2)
    w.values("kv_cache_usage_ratio", np.where(during, 0.995, 0.2))
    w.goes("preemptions_per_second", 0.0, 3.0)
    w.goes("waiting_requests", 0.0, 6.0)
    w.values("running_requests", np.where(during, 2.0 + np.arange(POINTS) % 7, 4.0))
    w.states("kv_blocks", "8800", "66")
    w.clients()


@speaks_for("prefix_cache_off", "off")
def caching_is_off(w: World) -> None:
    sessions_resend_all(w)
    w.states("prefix_caching", "off")
    w.values("prefix_cache_query_tokens_per_second", np.zeros(POINTS))
    for row in w.rows:
        row["cached_tokens"] = 0


@speaks_for("prefix_cache_broken", "hits")
@speaks_against("prefix_cache_scattered", "kv_cache_exhaustion")
def nothing_is_hit_any_more(w: World) -> None:
    w.slow(1.5, phase="prefill")
    w.goes("prefix_cache_hit_ratio", 0.6, 0.001)
    w.clients("before")
    w.clients("during", cached_tokens=0, ttft_seconds=1.5, duration_seconds=3.5)


@speaks_for("prefix_cache_scattered", "hits")
def turns_change_the_replica(w: World) -> None:
    w.slow(1.5, phase="prefill")
    for name in ("ttft_seconds_mean", "ttft_seconds_p95", "prefill_seconds_mean", "first_tokens_per_second",
                 "prefix_cache_query_tokens_per_second", "running_requests"):  # fmt: skip
        w.values(name, w.series[name, "e0"].values, "e1")
    for instance in ("e0", "e1"):
        w.goes("prefix_cache_hit_ratio", 0.9, 0.4, instance)
    w.clients("before", session=lambda i: f"b{i % 20}", instance=lambda i: f"e{i % 2}")
    w.clients(
        "during", session=lambda i: f"d{i % 20}", instance=lambda i: f"e{(i // 20) % 2}" if i % 3 else "e0",
        cached_tokens=lambda i: 480 if i % 3 == 0 else 0, ttft_seconds=1.5, duration_seconds=3.5,
    )  # fmt: skip


@speaks_for("head_of_line_blocking", "giants")
@speaks_against("tenant_dominance")
def a_giant_every_minute(w: World) -> None:
    w.slow(0.6, phase="prefill")
    w.goes("ttft_seconds_p95", 0.3, 8.0)
    w.goes("prompt_tokens_per_request_p99", 1000, 24_000)
    w.clients("before")
    w.clients("during", ttft_seconds=lambda i: max(0.2, 10 - 2 * i % 40))
    for i in range(10):
        w.rows.append({"ts": w.onset + 40 * i, "session": f"g{i}", "tenant": f"t{i % 3}",
                       "prompt_tokens": 24_000, "cached_tokens": 0, "output_tokens": 100, "instance": "e0",
                       "ttft_seconds": 10.0, "duration_seconds": 12.0, "status": "ok"})  # fmt: skip


@speaks_for("tenant_dominance", "share")
@speaks_against("telemetry_fault")
def one_tenant_takes_all(w: World) -> None:
    w.slow(phase="queue")
    w.turns(first_tokens_per_second=3, waiting_requests=20)
    w.clients("before")
    w.clients("during", ttft_seconds=3.0, duration_seconds=5.0)
    w.clients(
        "during", every=0.4, tenant="t0", session=lambda i: f"t0-{i}", ttft_seconds=3.0, duration_seconds=5.0
    )


@speaks_for("abandoned_requests", "aborts")
@speaks_against("load_burst")
def clients_give_up(w: World) -> None:
    w.turns(finished_requests_per_second=0.15)
    w.clients("before")
    w.clients("during", status=lambda i: "ok" if i % 10 < 3 else "aborted", duration_seconds=0.3)


@speaks_for("long_outputs", "outputs")
def answers_are_six_times_as_long(w: World) -> None:
    w.turns(
        output_tokens_per_request_mean=600, e2e_seconds_mean=13, running_requests=14, decode_seconds_mean=12.8
    )
    w.clients("before")
    w.clients("during", output_tokens=600, duration_seconds=13.0)


@speaks_for("sequence_limit", "pinned")
def two_run_and_eight_wait(w: World) -> None:
    w.slow(phase="queue")
    w.values("running_requests", np.where(during, 2.0, 3.0 + np.arange(POINTS) % 4))
    w.values("waiting_requests", np.where(during, 8.0, 0.0))
    w.states("max_num_seqs", "2")
    w.clients("before")
    w.clients("during", ttft_seconds=3.0, duration_seconds=5.0)


@speaks_for("engine_restart", "restarted")
def a_new_process(w: World) -> None:
    w.slow(phase="queue")
    w.values("target_up", np.where((np.arange(POINTS) >= AT) & (np.arange(POINTS) < AT + 8), 0.0, 1.0))
    w.values(
        "engine_start_time_seconds", np.where(np.arange(POINTS) < AT + 8, w.window.start - 9000, w.onset + 20)
    )
    w.clients("before")
    w.clients("during", status=lambda i: "error" if i < 60 else "ok", ttft_seconds=3.0)


@speaks_for("config_change", "setting")
def a_rollout_with_another_setting(w: World) -> None:
    a_new_process(w)
    w.states("max_num_seqs", "16", "2")
    w.events.append(Event(w.onset - 20, "config", "e0", "restart with --max-num-seqs 2"))
    w.values("running_requests", np.where(during, 2.0, 3.0 + np.arange(POINTS) % 6))
    w.values("waiting_requests", np.where(during, 8.0, 0.0))


def gpu(w: World, name: str, before: float, value: float) -> None:
    w.goes(name, before, value, **GPU)


def steps_take_longer(w: World) -> None:
    w.slow(1.5)
    w.turns(inter_token_seconds_mean=0.04, e2e_seconds_mean=4.4)
    w.clients("before")
    w.clients("during", ttft_seconds=1.5, duration_seconds=5.5)


@speaks_for("thermal_throttle", "reason")
@speaks_against("power_cap", "noisy_neighbour")
def a_hot_card(w: World) -> None:
    steps_take_longer(w)
    gpu(w, "gpu_thermal_throttle_ratio", 0.0, 0.9)
    gpu(w, "gpu_power_throttle_ratio", 0.0, 0.0)
    gpu(w, "gpu_sm_clock_hertz", 1.98e9, 1.2e9)
    gpu(w, "gpu_temperature_celsius", 60, 88)
    gpu(w, "gpu_foreign_memory_bytes", 0.0, 0.0)


@speaks_for("power_cap", "reason")
@speaks_against("thermal_throttle")
def a_capped_card(w: World) -> None:
    steps_take_longer(w)
    gpu(w, "gpu_thermal_throttle_ratio", 0.0, 0.0)
    gpu(w, "gpu_power_throttle_ratio", 0.0, 0.9)
    gpu(w, "gpu_sm_clock_hertz", 1.98e9, 1.2e9)
    gpu(w, "gpu_power_limit_watts", 700, 400)
    gpu(w, "gpu_temperature_celsius", 60, 60)


@speaks_for("noisy_neighbour", "in_step")
def a_batch_job_in_step(w: World) -> None:
    busy = during & (np.arange(POINTS) % 10 < 5)
    for name in ("ttft_seconds_mean", "ttft_seconds_p50", "ttft_seconds_p95"):
        w.values(name, np.where(busy, 3.0, CALM[name]))
    w.values("gpu_foreign_memory_bytes", np.where(busy, 8e9, 0.0), **GPU)
    w.clients()


@speaks_for("host_cpu_starvation", "cpu")
@speaks_against("host_memory_leak", "network_latency", "prefix_cache_broken")
def hogs_on_the_engines_core(w: World) -> None:
    steps_take_longer(w)
    w.goes("node_cpu_busy_ratio", 0.3, 0.99, node="n0")
    w.goes("node_load1", 3, 15, node="n0")
    w.goes("engine_resident_memory_bytes", 4e9, 4e9)
    w.values("node_major_faults_per_second", np.zeros(POINTS), node="n0")


@speaks_for("host_memory_leak", "resident")
def a_backend_that_swaps(w: World) -> None:
    grown = np.maximum(np.arange(POINTS) - 60, 0) * 1e8
    w.values("process_resident_memory_bytes", 2e9 + grown, "backend")
    w.goes("node_memory_available_ratio", 0.5, 0.03, node="n0")
    w.goes("node_major_faults_per_second", 0.0, 60.0, node="n0")
    w.slow()
    w.clients("before")
    w.clients("during", ttft_seconds=4.0, duration_seconds=7.0)


@speaks_for("network_latency", "gap")
def a_slow_way(w: World) -> None:
    w.clients("before")
    w.clients("during", ttft_seconds=2.2, duration_seconds=4.2)


@speaks_for("telemetry_fault", "frozen")
def a_frozen_page(w: World) -> None:
    w.stalls["e0"] = (Window(w.onset, w.window.end),)
    for key, series in w.series.items():
        last = series.values[AT]
        frozen = 0.0 if key[0].endswith("_per_second") or key[0] == "engine_cpu_ratio" else last
        w.values(key[0], np.where(during, frozen, series.values), key[1])
    w.clients()
