"""Where two causes look alike, something harmless stands beside the cause, or it happens elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diag.model import Event, Fact, Stance, State, Verdict

from . import scenes
from .conftest import AT, CALM, GPU, POINTS, World
from .scenes import FOR, Play, Scene, during, gpu


def supported(verdict: Verdict) -> dict[str, str | None]:
    """What the verdict believes, and what each is a consequence of."""
    return {
        a.id: a.explained_by for a in verdict.assessments if a.state is State.SUPPORTED and a.id != "unknown"
    }


def second_engine(w: World) -> None:
    """``e1`` beside ``e0``, calm."""
    for name, value in CALM.items():
        w.goes(name, value, value, "e1")


def harmless_deploy_beside_a_burst(w: World) -> None:
    scenes.seven_times_the_rate(w)
    w.events.append(Event(w.onset - 60, "deploy", "chat-backend", "v2"))


def usual_power_cap_under_load(w: World) -> None:
    scenes.seven_times_the_rate(w)
    gpu(w, "gpu_power_throttle_ratio", 0.05, 0.9)
    gpu(w, "gpu_thermal_throttle_ratio", 0.0, 0.0)
    gpu(w, "gpu_sm_clock_hertz", 1.98e9, 1.90e9)
    gpu(w, "gpu_temperature_celsius", 55, 72)


def idling_card_behind_a_slow_way(w: World) -> None:
    scenes.a_slow_way(w)
    gpu(w, "gpu_thermal_throttle_ratio", 0.0, 0.0)
    gpu(w, "gpu_sm_clock_hertz", 1.98e9, 0.6e9)
    gpu(w, "gpu_temperature_celsius", 60, 40)


def leak_beside_a_burst(w: World) -> None:
    scenes.seven_times_the_rate(w)
    w.values("process_resident_memory_bytes", 2e9 + np.maximum(np.arange(POINTS) - 60, 0) * 1e8, "backend")
    w.values("node_major_faults_per_second", np.zeros(POINTS), node="n0")


def growth_of_one_tenants_sessions(w: World) -> None:
    scenes.sessions_resend_all(w)
    for row in w.rows:
        if row["session"].startswith("old"):
            row["tenant"] = "t0"


def clients_leave_a_hot_card(w: World) -> None:
    scenes.a_hot_card(w)
    late = [row for row in w.rows if row["ts"] >= w.onset]
    for i, row in enumerate(late):
        if i % 10 < 6:
            row.update(status="aborted", duration_seconds=1.0, ttft_seconds=None)


def restart_some_time_before_a_burst(w: World) -> None:
    scenes.seven_times_the_rate(w)
    restarted = np.arange(POINTS) >= AT // 2
    w.values("engine_start_time_seconds", np.where(restarted, w.window.start + 295, w.window.start - 9000))


BESIDE: dict[Scene, str] = {
    harmless_deploy_beside_a_burst: "load_burst",
    usual_power_cap_under_load: "load_burst",
    leak_beside_a_burst: "load_burst",
    restart_some_time_before_a_burst: "load_burst",
    idling_card_behind_a_slow_way: "network_latency",
    growth_of_one_tenants_sessions: "context_growth",
    clients_leave_a_hot_card: "thermal_throttle",
}


@pytest.mark.parametrize("scene", BESIDE, ids=lambda scene: scene.__name__)
def test_what_is_only_beside_the_cause_is_not_blamed(scene: Scene, play: Play) -> None:
    verdict = play(scene).verdict
    assert verdict.leading == BESIDE[scene]
    assert [id for id, parent in supported(verdict).items() if parent is None] == [BESIDE[scene]]


def another_nodes_cpu(w: World) -> None:
    scenes.steps_take_longer(w)
    w.goes("node_cpu_busy_ratio", 0.3, 0.99, "n9", node="n9")
    w.goes("node_cpu_busy_ratio", 0.3, 0.3, node="n0")


def another_engines_card(w: World) -> None:
    scenes.steps_take_longer(w)
    for name, before, value in (("thermal_throttle_ratio", 0.0, 0.9), ("sm_clock_hertz", 1.98e9, 1.2e9)):
        w.goes(f"gpu_{name}", before, value, gpu="GPU-2", node="n1")
        w.goes(f"gpu_{name}", before, before, **GPU)


@pytest.mark.parametrize("scene", [another_nodes_cpu, another_engines_card])
def test_what_happens_elsewhere_convicts_nobody(scene: Scene, play: Play) -> None:
    verdict = play(scene).verdict
    assert supported(verdict) == {}
    assert verdict.leading == "unknown"


def job_in_its_own_rhythm(w: World) -> None:
    w.slow(1.5)
    w.clients("before")
    w.clients("during", ttft_seconds=1.5)
    w.values("gpu_foreign_memory_bytes", np.where(np.arange(POINTS) % 14 < 7, 8e9, 0.0), **GPU)


def job_that_came_once(w: World) -> None:
    w.slow(1.5)
    w.clients("before")
    w.clients("during", ttft_seconds=1.5)
    w.values("gpu_foreign_memory_bytes", np.where(during, 8e9, 0.0), **GPU)


def test_a_neighbour_out_of_step_is_ruled_out_with_numbers(play: Play) -> None:
    found = play(job_in_its_own_rhythm).of("noisy_neighbour")
    assert found.state is State.RULED_OUT
    (decisive,) = [e for e in found.evidence if e.decisive]
    assert decisive.cue == "in_step"
    assert any(letter.isdigit() for letter in decisive.text)


def test_one_coincidence_in_time_does_not_convict(play: Play) -> None:
    assert play(job_that_came_once).of("noisy_neighbour").state is State.UNDECIDED


def exporter_that_dies(w: World) -> None:
    scenes.a_hot_card(w)
    for (name, where), series in list(w.series.items()):
        if where == GPU["gpu"]:
            w.series[name, where] = replace(series, values=np.where(during, np.nan, series.values))


@pytest.mark.parametrize("id", ["thermal_throttle", "power_cap", "noisy_neighbour"])
def test_a_gpu_exporter_that_dies_with_the_service_leaves_its_causes_open(id: str, play: Play) -> None:
    assert play(exporter_that_dies).of(id).state is State.NOT_ASSESSABLE


def answers_that_fill_the_pool(w: World) -> None:
    scenes.answers_are_six_times_as_long(w)
    w.slow(phase="queue")
    w.values("kv_cache_usage_ratio", np.where(during, 0.995, 0.2))
    w.goes("preemptions_per_second", 0.0, 2.0)
    w.goes("waiting_requests", 0.0, 6.0)


def test_a_full_pool_is_told_as_a_consequence(play: Play) -> None:
    assert supported(play(answers_that_fill_the_pool).verdict) == {
        "long_outputs": None,
        "kv_cache_exhaustion": "long_outputs",
    }


# Without records these have no witness left: clients, tenants, sessions, placement.
WITNESSED = {
    "abandoned_requests", "context_growth", "kv_cache_exhaustion", "network_latency", "prefix_cache_off",
    "prefix_cache_scattered", "telemetry_fault", "tenant_dominance",
}  # fmt: skip


@pytest.mark.parametrize("id", sorted(set(FOR) - WITNESSED))
def test_metrics_alone_name_the_cause_too(id: str, play: Play) -> None:
    verdict = play(_without_records(FOR[id])).verdict
    assert verdict.leading == id
    assert verdict.assessments[0].state is State.SUPPORTED


def _without_records(scene: Scene) -> Scene:
    def bare(w: World) -> None:
        scene(w)
        w.rows.clear()

    return bare


def growth_in_histograms_alone(w: World) -> None:
    climb = np.maximum(np.arange(POINTS) - AT, 0) / (POINTS - AT)
    for name, most in {
        "prompt_tokens_per_request_mean": 9000, "prompt_tokens_per_request_p50": 7000,
        "prompt_tokens_per_request_p99": 20_000, "ttft_seconds_mean": 6, "ttft_seconds_p95": 9,
        "ttft_seconds_p50": 5, "prefill_seconds_mean": 6,
    }.items():  # fmt: skip
        w.values(name, CALM[name] + (most - CALM[name]) * climb)


def test_growth_is_told_from_giants_by_how_it_climbs(play: Play) -> None:
    played = play(growth_in_histograms_alone)
    assert played.verdict.leading == "context_growth"
    assert played.of("context_growth").state is State.SUPPORTED
    assert played.of("head_of_line_blocking").state is not State.SUPPORTED


# Known defects, one a test; each says what is wrong in its reason.


def scrapes_fail_while_clients_are_served(w: World) -> None:
    w.clients()
    for (name, where), series in list(w.series.items()):
        w.series[name, where] = replace(series, values=np.where(during, np.nan, series.values))
    w.values("target_up", np.where(during, 0.0, 1.0))


def test_failing_scrapes_are_a_fault_of_telemetry(play: Play) -> None:
    played = play(scrapes_fail_while_clients_are_served)
    assert played.of("telemetry_fault").state is not State.RULED_OUT
    assert any(e.stance is Stance.FOR for e in played.of("telemetry_fault").evidence)


def another_engine_restarts(w: World) -> None:
    second_engine(w)
    w.slow(phase="prefill")
    w.clients("before")
    w.clients("during", ttft_seconds=3.0)
    late = np.arange(POINTS) >= AT + 8
    w.values("target_up", np.where(during & ~late, 0.0, 1.0), "e1")
    w.values("engine_start_time_seconds", np.where(late, w.onset + 20, w.window.start - 9000), "e1")


def test_the_restart_of_an_engine_that_is_not_slow_convicts_nobody(play: Play) -> None:
    played = play(another_engine_restarts)
    assert played.view.affected == ("e0",)
    assert played.of("engine_restart").state is not State.SUPPORTED


def running_falls_silent(w: World) -> None:
    scenes.two_run_and_eight_wait(w)
    w.values("running_requests", np.where(during, np.nan, 4.0))


def test_a_ceiling_that_nobody_saw_is_not_ruled_out(play: Play) -> None:
    assert play(running_falls_silent).of("sequence_limit").state is not State.RULED_OUT


def a_burst_of_new_sessions_that_give_up(w: World) -> None:
    scenes.seven_times_the_rate(w)
    late = [row for row in w.rows if row["ts"] >= w.onset]
    for i, row in enumerate(late):
        if i % 10 < 6:
            row.update(status="aborted", duration_seconds=1.0, ttft_seconds=None)


def test_clients_that_leave_a_burst_are_its_consequence(play: Play) -> None:
    played = play(a_burst_of_new_sessions_that_give_up)
    assert played.view.workload is not None
    assert played.view.workload.findings["sessions_per_second"].effect > 1
    assert played.verdict.leading == "load_burst"


def a_tenants_share_told_by_the_exporter_alone(w: World) -> None:
    w.slow(phase="queue")
    w.turns(first_tokens_per_second=3, waiting_requests=20)
    w.goes("top_tenant_ratio", 0.28, 0.81, "exporter")


def departures_told_by_the_exporter_alone(w: World) -> None:
    w.goes("aborted_ratio", 0.0, 0.4, "exporter")
    w.turns(finished_requests_per_second=0.6)


def test_a_tenants_share_needs_no_request_records(play: Play) -> None:
    played = play(a_tenants_share_told_by_the_exporter_alone)
    found = played.of("tenant_dominance")
    assert found.state is not State.NOT_ASSESSABLE
    assert any(e.stance is Stance.FOR and "81 %" in e.text for e in found.evidence)
    assert played.verdict.leading in ("tenant_dominance", "load_burst")


def test_departures_need_no_request_records(play: Play) -> None:
    played = play(departures_told_by_the_exporter_alone)
    assert played.verdict.leading == "abandoned_requests"
    assert "aborted_ratio" in {s.signal for s in played.verdict.symptoms}


def caching_ends_at_a_restart(w: World) -> None:
    """SGLang tells its settings in the start-up log alone, and goes on counting prompts as looked up."""
    scenes.nothing_is_hit_any_more(w)
    w.goes("prefix_cache_hit_ratio", 0.6, 0.0)
    w.values("engine_start_time_seconds", np.where(during, w.onset, w.window.start - 9000))


def told_by_its_log(w: World) -> None:
    caching_ends_at_a_restart(w)
    w.facts.append(Fact("prefix_caching", "off", {"instance": "e0"}, "log:e0", since=w.onset))


@pytest.mark.parametrize("scene", [caching_ends_at_a_restart, told_by_its_log], ids=lambda s: s.__name__)
def test_a_cache_that_gave_something_until_the_restart_was_switched_off(scene: Scene, play: Play) -> None:
    played = play(scene)
    assert played.verdict.leading == "prefix_cache_off"
    assert any(e.cue == "switched" and e.stance is Stance.FOR for e in played.of("prefix_cache_off").evidence)


def test_a_cache_that_never_gave_anything_was_not_switched(play: Play) -> None:
    room = play(scenes.caching_is_off).of("prefix_cache_off")
    assert not any(e.cue == "switched" for e in room.evidence)


def test_heads_that_change_without_a_restart_leave_the_cache_on(play: Play) -> None:
    assert play(scenes.nothing_is_hit_any_more).verdict.leading == "prefix_cache_broken"
