"""What tells causes of the machine, the way and the telemetry apart, one mechanism a test."""

from __future__ import annotations

import numpy as np
import pytest

from diag.model import Stance, State

from . import scenes
from .conftest import AT, CALM, GPU, POINTS, Played, World
from .machine_scenes import clean_card, one_client_waits_for_itself, second_engine
from .scenes import Play, Scene, during

OTHER = {"gpu_index": "1", "node": "n0"}
IS = "card 1"


def stance(played: Played, id: str, cue: str) -> Stance | None:
    """How a cue came out; None when it was not asked."""
    return next((e.stance for e in played.of(id).evidence if e.cue == cue), None)


def gauges_are_left_over(w: World) -> None:
    """``e0`` shows four running requests and no token, and its clients are served all the same."""
    w.clients()
    for name in ("first_tokens_per_second", "prompt_tokens_per_second"):
        w.turns(**{name: 0.0})
    w.goes("generation_tokens_per_second", 50.0, 0.0)
    w.values("running_requests", np.full(POINTS, 4.0))
    w.values("target_up", np.ones(POINTS))


def test_gauges_left_over_are_no_stall_when_clients_are_served(play: Play) -> None:
    played = play(gauges_are_left_over)
    assert played.of("telemetry_fault").state is State.SUPPORTED
    assert played.of("engine_stall").state is not State.SUPPORTED


def falls_out_of_the_list(w: World) -> None:
    """``e0`` is asked no more; ``up`` ends with the rest, and clients are served."""
    second_engine(w)
    w.clients()
    w.values("target_up", np.where(during, np.nan, 1.0))
    for name, value in CALM.items():
        w.values(name, np.where(during, np.nan, value))


def test_a_target_that_nobody_asks_any_more_is_a_fault_of_telemetry(play: Play) -> None:
    assert play(falls_out_of_the_list).of("telemetry_fault").state is State.SUPPORTED


def memory_counters_alone(w: World) -> None:
    scenes.a_new_process(w)
    w.values("gpu_uncorrectable_ecc_errors", np.zeros(POINTS), **GPU)


def test_resting_memory_counters_exclude_no_fault(play: Play) -> None:
    assert play(memory_counters_alone).of("gpu_hardware_fault").state is not State.RULED_OUT


def both_cards_draw_less(w: World) -> None:
    scenes.steps_take_longer(w)
    clean_card(w, watts=330.0)
    for name, now in (("gpu_utilization_ratio", 0.8), ("gpu_sm_clock_hertz", 1.98e9)):
        w.values(name, np.full(POINTS, now), IS, **OTHER)
    w.values("gpu_power_watts", np.where(during, 330.0, 500.0), IS, **OTHER)


def one_card_draws_less(w: World) -> None:
    both_cards_draw_less(w)
    w.values("gpu_power_watts", np.full(POINTS, 500.0), IS, **OTHER)


@pytest.mark.parametrize(("scene", "found"), [(both_cards_draw_less, False), (one_card_draws_less, True)])
def test_a_slow_card_is_one_that_its_likes_are_not(scene: Scene, found: bool, play: Play) -> None:
    played = play(scene)
    assert (stance(played, "slow_gpu", "watts") is Stance.FOR) is found


def peers_compute_what_they_found(w: World, computed: float) -> None:
    """``e1`` begins anew; of 800 tokens ``e0`` finds 480 in its own cache, and 240 elsewhere until then."""
    w.slow(phase="prefill")
    second_engine(w)
    for name in ("e0", "e1"):
        w.values("computed_tokens_per_request_mean", np.full(POINTS, 80.0), name)
    w.goes("computed_tokens_per_request_mean", 80.0, computed)
    started = np.where(np.arange(POINTS) < AT - 12, w.window.start - 9000, w.onset - 60)
    w.values("engine_start_time_seconds", started, "e1")


def test_what_peers_held_and_hold_no_more_needs_no_count_of_misses(play: Play) -> None:
    lost = play(lambda w: peers_compute_what_they_found(w, 320.0))
    assert stance(lost, "stale_cache_peer", "elsewhere") is Stance.FOR
    kept = play(lambda w: peers_compute_what_they_found(w, 80.0))
    assert stance(kept, "stale_cache_peer", "elsewhere") is Stance.AGAINST


def one_in_twenty_waits(w: World) -> None:
    """A client whose median is as before, since only its bursts queue."""
    w.clients("before", engine_ttft_seconds=0.19)
    w.clients(
        "during", engine_ttft_seconds=0.19, ttft_seconds=lambda i: 4.0 if i % 3 == 0 and i % 9 == 0 else 0.2
    )


def test_a_client_is_hit_when_its_worst_waits_are(play: Play) -> None:
    assert stance(play(one_in_twenty_waits), "client_limit", "one_client") is Stance.FOR
    assert stance(play(one_client_waits_for_itself), "client_limit", "one_client") is Stance.FOR


def long_prompts_meet_the_timeout(w: World) -> None:
    """Prompts of a hundred times the usual end at sixty seconds sharp; the others are as fast as ever."""
    w.series.pop(("running_requests", "e0"))
    w.clients("before")
    w.clients(
        "during",
        prompt_tokens=lambda i: 90_000 if i % 4 == 0 else 800,
        ttft_seconds=lambda i: None if i % 4 == 0 else 0.2,
        duration_seconds=lambda i: 60.01 if i % 4 == 0 else 2.2,
        status=lambda i: "504" if i % 4 == 0 else "ok",
    )


def test_a_timeout_cuts_what_is_long_by_itself_without_engine_metrics(play: Play) -> None:
    played = play(long_prompts_meet_the_timeout)
    assert stance(played, "proxy_limit", "cut_off") is Stance.FOR


def a_backend_that_has_leaked_all_along(w: World) -> None:
    w.slow()
    climb = 2e9 + 1e9 * np.arange(POINTS) / 2
    w.values("process_resident_memory_bytes", np.minimum(climb, 80e9), "backend", node="n0")


def test_a_climb_is_not_its_own_wander(play: Play) -> None:
    played = play(a_backend_that_has_leaked_all_along)
    assert stance(played, "host_memory_leak", "resident") is Stance.FOR


def milliseconds_are_lost(w: World) -> None:
    """An engine goes away; those who are served elsewhere lose sixty milliseconds on the way."""
    scenes.a_new_process(w)
    w.clients("before", engine_ttft_seconds=0.19)
    w.clients("during", engine_ttft_seconds=0.19, ttft_seconds=0.26)


def test_what_nobody_feels_makes_no_slow_way(play: Play) -> None:
    assert play(milliseconds_are_lost).of("network_latency").state is not State.SUPPORTED
