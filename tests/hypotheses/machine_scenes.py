"""What can go wrong in cards, hosts and between machines: a scene for each cause and one against it."""

from __future__ import annotations

import numpy as np

from . import scenes
from .conftest import AT, CALM, GPU, POINTS, World
from .scenes import during, gpu, speaks_against, speaks_for

HOST = {"node": "n0"}


def second_engine(w: World, **now: float) -> None:
    """``e1`` beside ``e0``; ``now``: how it stands since the onset, where that differs."""
    for name, value in CALM.items():
        w.goes(name, value, now.get(name, value), "e1")
    w.values("target_up", np.ones(POINTS), "e1")


def clean_card(w: World, watts: float = 500.0) -> None:
    gpu(w, "gpu_utilization_ratio", 0.8, 0.8)
    gpu(w, "gpu_sm_clock_hertz", 1.98e9, 1.98e9)
    gpu(w, "gpu_power_watts", 500.0, watts)
    for name in ("gpu_thermal_throttle_ratio", "gpu_power_throttle_ratio", "gpu_foreign_memory_bytes"):
        gpu(w, name, 0.0, 0.0)


@speaks_for("gpu_hardware_fault", "fault")
def an_xid_before_the_engine_dies(w: World) -> None:
    scenes.a_new_process(w)
    w.values("gpu_xid_code", np.where(np.arange(POINTS) >= AT, 79.0, 0.0), **GPU)


@speaks_against("gpu_hardware_fault")
def a_restart_with_resting_counters(w: World) -> None:
    scenes.a_new_process(w)
    w.values("gpu_xid_code", np.full(POINTS, 31.0), **GPU)
    w.values("gpu_uncorrectable_ecc_errors", np.full(POINTS, 3.0), **GPU)


@speaks_for("gpu_link_degraded", "narrow")
def four_lanes_are_left(w: World) -> None:
    scenes.steps_take_longer(w)
    clean_card(w)
    w.values("gpu_link_width_ratio", np.where(during, 0.25, 1.0), **GPU)
    gpu(w, "gpu_link_errors_per_second", 0.0, 3.0)


@speaks_for("slow_gpu", "watts")
@speaks_against("gpu_link_degraded", "numa_misplacement")
def fewer_watts_at_the_same_clock(w: World) -> None:
    scenes.steps_take_longer(w)
    clean_card(w, watts=330.0)
    second_engine(w)
    w.values("gpu_link_width_ratio", np.ones(POINTS), **GPU)
    w.goes("node_numa_remote_ratio", 0.03, 0.03, **HOST)


@speaks_against("slow_gpu")
def a_lower_clock(w: World) -> None:
    scenes.a_hot_card(w)
    gpu(w, "gpu_power_watts", 500.0, 300.0)


def halts(w: World, first: float, growth: float) -> None:
    """Every forty seconds of the trouble nothing comes out for a while, each time longer; what would have
    come then comes at its end. Requests arrive when they like."""
    begins = w.onset + 15 + 40 * np.arange(9)
    ends = begins + first * growth ** np.arange(9)

    def out(moment: float) -> float:
        return max([moment, *(end for begin, end in zip(begins, ends, strict=True) if begin <= moment < end)])

    rng = np.random.default_rng(0)
    for i, ts in enumerate(np.sort(rng.uniform(w.window.start, w.window.end, 1000))):
        token, done = out(ts + 0.2), out(ts + 2.2)
        w.rows.append({
            "ts": ts, "session": f"s{i // 3}", "tenant": f"t{i % 3}", "instance": "e0",
            "prompt_tokens": 600 + 200 * int(rng.integers(3)), "cached_tokens": 480, "output_tokens": 100,
            "ttft_seconds": token - ts, "duration_seconds": done - ts, "status": "ok",
        })  # fmt: skip


@speaks_for("runtime_pauses", "silences")
def halts_that_grow(w: World) -> None:
    halts(w, 5.0, 1.15)
    halted = during & (np.arange(POINTS) % 8 < 4)
    for name, value in {
        "ttft_seconds_p95": 9.0,
        "inter_token_seconds_p99": 8.0,
        "ttft_seconds_mean": 2.5,
    }.items():
        w.values(name, np.where(halted, value, CALM.get(name, 0.04)))


@speaks_against("runtime_pauses")
def steadily_slower(w: World) -> None:
    scenes.steps_take_longer(w)
    w.rows.clear()
    w.clients("before", every=0.2)
    w.clients("during", every=0.2, ttft_seconds=1.5, duration_seconds=lambda i: 5.5 + 0.1 * (i % 7))


@speaks_for("numa_misplacement", "far")
def back_on_the_wrong_socket(w: World) -> None:
    scenes.steps_take_longer(w)
    w.goes("node_numa_remote_ratio", 0.03, 0.9, **HOST)
    w.goes("node_numa_remote_ratio", 0.03, 0.03, "other", node="n1")
    w.values(
        "engine_start_time_seconds", np.where(np.arange(POINTS) < AT, w.window.start - 9000, w.onset - 5)
    )


@speaks_for("proxy_limit", "pinned")
def a_pool_of_four(w: World) -> None:
    """Everybody waits in the gateway: a burst each minute, served four at a time."""
    bursts(w, tenants=3)
    w.values("running_requests", np.where(during, 4.0, 1.0))


def bursts(w: World, tenants: int, hit: str = "") -> None:
    """Before: a trickle. Then twenty requests within ten seconds each half minute, four at a time and two
    seconds each; with ``hit`` they are of one tenant, beside the others' trickle."""
    w.clients("before")
    free = [0.0] * 4
    for minute in range(int((w.window.end - w.onset) / 40)):
        for k in range(20):
            sent = w.onset + 40 * minute + 0.5 * k
            slot = min(range(4), key=lambda s: free[s])
            start = max(sent, free[slot])
            free[slot] = start + 6.0
            w.rows.append({
                "ts": sent, "session": f"b{minute}-{k}", "tenant": hit or f"t{k % tenants}", "instance": "e0",
                "prompt_tokens": 700, "cached_tokens": 480, "output_tokens": 300,
                "ttft_seconds": start - sent + 0.2, "duration_seconds": start - sent + 6.0,
                "engine_ttft_seconds": 0.19, "status": "ok",
            })  # fmt: skip
    for row in w.rows:
        row.setdefault("engine_ttft_seconds", 0.19)


@speaks_for("client_limit", "held_back")
def one_client_waits_for_itself(w: World) -> None:
    bursts(w, tenants=1, hit="t0")
    trickle = [dict(row) for row in w.rows if row["ts"] < w.onset]
    for row in trickle:
        row["ts"] += w.onset - w.window.start
    w.rows += [row for row in trickle if row["ts"] < w.window.end and row["tenant"] != "t0"]
    w.values("running_requests", np.where(during, 4.0, 4.0) + np.arange(POINTS) % 3)


@speaks_against("proxy_limit", "client_limit")
def a_queue_in_the_engine(w: World) -> None:
    scenes.seven_times_the_rate(w)
    for row in w.rows:
        row["engine_ttft_seconds"] = row["ttft_seconds"] - 0.01


@speaks_for("fabric_flap", "downs")
def links_go_down_and_transfers_fail(w: World) -> None:
    w.slow(phase="prefill")
    flaps = during & (np.arange(POINTS) % 16 < 4)
    w.values("node_infiniband_link_downs_per_second", np.where(flaps, 0.04, 0.0), **HOST)
    w.goes("kv_transfer_failures_per_second", 0.0, 1.5)
    w.goes("kv_transfers_per_second", 5.0, 3.0)
    w.clients("before")
    w.clients("during", ttft_seconds=3.0, duration_seconds=5.0)


@speaks_for("kv_transfer_failure", "failures")
@speaks_against("fabric_flap", "stale_cache_peer")
def transfers_fail_on_sound_links(w: World) -> None:
    w.slow(phase="prefill")
    w.values("node_infiniband_link_downs_per_second", np.zeros(POINTS), **HOST)
    w.goes("kv_transfer_failures_per_second", 0.0, 1.5)
    w.goes("kv_transfers_per_second", 5.0, 3.0)
    w.values("kv_lookup_misses_per_second", np.zeros(POINTS))
    w.clients("before")
    w.clients("during", ttft_seconds=3.0, duration_seconds=5.0)


@speaks_against("kv_transfer_failure")
def a_burst_with_resting_counters(w: World) -> None:
    scenes.seven_times_the_rate(w)
    w.values("kv_transfer_failures_per_second", np.zeros(POINTS))


@speaks_for("stale_cache_peer", "misses")
def asked_for_a_dead_ones_keys(w: World) -> None:
    w.slow(phase="prefill")
    w.goes("kv_lookup_misses_per_second", 0.0, 4.0)
    second_engine(w)
    started = np.where(np.arange(POINTS) < AT - 12, w.window.start - 9000, w.onset - 60)
    w.values("engine_start_time_seconds", started, "e1")
    w.clients("before")
    w.clients("during", ttft_seconds=3.0, duration_seconds=5.0)


@speaks_for("routing_hotspot", "share")
def all_follow_one_prefix(w: World) -> None:
    w.slow(phase="queue")
    second_engine(w, first_tokens_per_second=0.06, running_requests=0.6)
    w.goes("waiting_requests", 0.0, 12.0)
    w.turns(first_tokens_per_second=0.94)
    w.clients("before", instance=lambda i: f"e{i % 2}")
    w.clients("during", instance=lambda i: "e1" if i % 16 == 0 else "e0",
              ttft_seconds=lambda i: 0.2 if i % 16 == 0 else 3.0, duration_seconds=5.0)  # fmt: skip


@speaks_against("routing_hotspot")
def an_even_burst(w: World) -> None:
    scenes.seven_times_the_rate(w)
    second_engine(w, first_tokens_per_second=3.5, running_requests=40.0)
    w.turns(first_tokens_per_second=3.5)
    for i, row in enumerate(w.rows):
        row["instance"] = f"e{i % 2}"
