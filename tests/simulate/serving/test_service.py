"""A whole service: laws of queueing, who gets what, and what a fault does to those it touches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from diag.simulate.observed import Call, Run
from diag.simulate.plan import (
    Client,
    Gateway,
    Gpu,
    Host,
    Lengths,
    Plan,
    Replica,
    Restart,
    ScriptedCall,
    Settings,
)
from diag.simulate.profiles import Profile, constant, step
from diag.simulate.serving import run

from .conftest import CLIENT, HALF, TWO, answered, plan


def token_seconds(calls: list[Call]) -> float:
    return float(
        np.median([(call.ended - call.first_token) / max(call.output_tokens - 1, 1) for call in calls])
    )


def first_seconds(calls: list[Call]) -> float:
    return float(np.median([call.answered - call.sent for call in calls]))


def change(result: Run, of: object = token_seconds) -> float:
    """What the second half is, as a multiple of the first."""
    assert callable(of)
    return float(of(answered(result, HALF + 10, 2 * HALF - 30)) / of(answered(result, 0.0, HALF - 30)))


@pytest.fixture(scope="module")
def healthy() -> Run:
    return run(plan())


def test_the_same_plan_gives_the_same_run(healthy: Run) -> None:
    again = run(plan())
    # As text, since NaN is unlike itself.
    assert [repr(call) for call in again.calls] == [repr(call) for call in healthy.calls]
    for one, other in zip(healthy.engines, again.engines, strict=True):
        assert {name: rows.tolist() for name, rows in one.counters.items()} == {
            name: rows.tolist() for name, rows in other.counters.items()
        }
    other_seed = run(replace(plan(), seed=8))
    assert [call.sent for call in other_seed.calls] != [call.sent for call in healthy.calls]


def test_a_slower_engine_is_asked_the_same_questions(healthy: Run) -> None:
    slow = run(plan(replicas=(Replica("vllm-0:8000", step_factor=constant(1.5)),)))
    firsts = [{c.session: (c.sent, c.prompt_tokens) for c in r.calls if c.turn == 0} for r in (healthy, slow)]
    assert len(firsts[0]) > 100
    assert firsts[0] == firsts[1]


def test_the_window_begins_as_it_goes_on(healthy: Run) -> None:
    engine = healthy.engines[0]
    third = healthy.times.size // 3
    for gauge in ("running", "kv_used_ratio"):
        early, late = (engine.gauges[gauge][rows].mean() for rows in (slice(third), slice(third, None)))
        assert early == pytest.approx(late, rel=0.25)
    hits = engine.counters["hits_tokens"] / np.maximum(engine.counters["queries_tokens"], 1)
    assert hits[8] == pytest.approx(hits[-1], abs=0.1)


def test_rows_are_on_the_grid_and_counters_never_fall(healthy: Run) -> None:
    assert healthy.times.tolist() == np.arange(0.0, 2 * HALF + 1, 15.0).tolist()
    engine = healthy.engines[0]
    for name, rows in engine.counters.items():
        assert rows.shape == healthy.times.shape, name
        assert rows[0] == 0, name
        assert (np.diff(rows) >= 0).all(), name
    for name, counts in engine.histograms.items():
        assert (np.diff(counts, axis=0) >= 0).all(), name


def test_every_call_ends_in_order_and_in_one_way(healthy: Run) -> None:
    for call in healthy.calls:
        if call.status == "ok":
            way = [call.sent, call.reached, call.arrived, call.queued, call.scheduled, call.first_token]
            assert way == sorted(way)
            assert call.first_token <= call.ended <= call.closed
            assert call.first_token <= call.answered <= call.closed
            assert (call.http_status, call.replica) == (200, "vllm-0:8000")
        else:
            assert call.status == ""
            assert np.isnan(call.closed)


def single_slot(rate: float, seconds: float = 6000.0) -> Run:
    """Poisson arrivals at one slot: with one sequence at a time an engine is an M/G/1 queue."""
    client = Client(
        sessions_per_second=constant(rate), turns=Lengths(1.0, 0.0, 1, 1), head_tokens=0,
        output_tokens=Lengths(60.0, 0.6, 1), message_tokens=Lengths(100.0, 0.3, 8),
    )  # fmt: skip
    settings = Settings(max_num_seqs=1, prefix_caching=False)
    replica = Replica("vllm-0:8000", settings=settings)
    return run(Plan("queue", 3, seconds=seconds, clients=(client,), replicas=(replica,)))


@pytest.mark.parametrize("rate", [0.25, 0.45])
def test_one_slot_waits_as_pollaczek_and_khinchine_say(rate: float) -> None:
    result = single_slot(rate)
    calls = answered(result, 0.0, 6000.0)
    service = np.array([call.ended - call.scheduled for call in calls])
    waits = np.array([call.scheduled - call.queued for call in calls])
    load = rate * service.mean()
    expected = rate * (service**2).mean() / (2 * (1 - load))
    assert waits.mean() == pytest.approx(expected, rel=0.2)
    # The utilisation law, as the engine's own gauge sees it at random moments.
    assert result.engines[0].gauges["running"].mean() == pytest.approx(load, rel=0.12)


def test_waits_grow_with_the_load() -> None:
    means = []
    for rate in (0.2, 0.4, 0.6):
        calls = answered(single_slot(rate, 2000.0), 0.0, 2000.0)
        means.append(np.mean([call.scheduled - call.queued for call in calls]))
    assert means[0] * 2 < means[1]
    assert means[1] * 2 < means[2]


def test_little_holds(healthy: Run) -> None:
    calls = answered(healthy, 0.0, 2 * HALF)
    inside = np.mean([call.ended - call.arrived for call in calls])
    gauges = healthy.engines[0].gauges
    mean = (gauges["running"] + gauges["waiting"]).mean()
    assert mean == pytest.approx(len(calls) / (2 * HALF) * inside, rel=0.12)


def on_card(**acts: Profile) -> Run:
    return run(plan(cards=((("node-0", 0), Gpu(**acts)),)))  # type: ignore[arg-type]


def test_heat_takes_the_clock_and_the_clock_the_steps() -> None:
    result = on_card(resistance=step(HALF, 1.0, 3.5))
    rows = result.cards[0].rows
    assert rows["clock_ratio"][:25].min() == 1.0
    assert np.median(rows["clock_ratio"][-9:]) < 0.9
    assert rows["celsius"][-1] > 80.0
    assert rows["thermal_seconds"][-1] > 150.0
    assert rows["power_cap_seconds"][-1] == 0.0
    assert change(result) > 1.1


def test_a_power_limit_takes_the_clock_of_a_cool_card() -> None:
    result = on_card(power_limit_ratio=step(HALF, 1.0, 0.5))
    rows = result.cards[0].rows
    assert rows["power_watts"][-1] == pytest.approx(350.0, abs=5.0)
    assert rows["power_limit_watts"][-1] == 350.0
    assert rows["power_cap_seconds"][-1] > 150.0
    assert rows["thermal_seconds"][-1] == 0.0
    assert rows["celsius"][-1] < rows["celsius"][10]
    assert change(result) > 1.15


def test_a_foreign_process_takes_its_share() -> None:
    result = on_card(foreign_sm_ratio=step(HALF, 0.0, 0.5))
    assert change(result) > 1.8
    assert result.cards[0].rows["clock_ratio"].min() == 1.0


def test_a_slow_card_draws_less_at_a_clean_clock() -> None:
    result = on_card(slow_factor=step(HALF, 1.0, 1.5))
    rows = result.cards[0].rows
    assert change(result) == pytest.approx(1.5, rel=0.15)
    assert rows["clock_ratio"].min() == 1.0
    assert rows["power_watts"][-5:].mean() < 0.85 * rows["power_watts"][5:20].mean()


def test_a_starved_host_leaves_the_gpu_idle() -> None:
    host = Host("node-0", other_cpu_ratio=step(HALF, 0.1, 0.99))
    result = run(plan(hosts=(host,)))
    assert change(result) > 1.5
    use = result.cards[0].rows["utilization_ratio"]
    assert use[-10:].mean() < use[5:20].mean() - 0.25
    assert result.nodes[0].rows["cpu_busy_ratio"][-1] == 1.0
    assert result.nodes[0].rows["cpu_pressure_ratio"][-1] > 0.5


def test_half_a_quota_makes_a_step_take_twice_as_long() -> None:
    result = run(plan(hosts=(Host("node-0", cpu_quota_ratio=step(HALF, 1.0, 0.5)),)))
    assert change(result) > 1.8
    assert result.nodes[0].rows["cpu_throttled_ratio"][-1] == 0.5


def test_eager_batches_are_slower() -> None:
    settings = Settings(eager_factor=1.8)
    result = run(plan(replicas=(Replica("vllm-0:8000", settings=settings, eager=step(HALF, 0.0, 1.0)),)))
    assert change(result) > 1.4


def test_drafts_that_are_not_taken_cost_more_than_they_give() -> None:
    settings = Settings(speculative_tokens=4)
    replica = Replica("vllm-0:8000", settings=settings, acceptance_ratio=step(HALF, 0.7, 0.05))
    result = run(plan(replicas=(replica,)))
    engine, half = result.engines[0], result.times.size // 2
    drafted, accepted = engine.counters["draft_tokens"], engine.counters["accepted_tokens"]
    assert accepted[half] / drafted[half] == pytest.approx(0.7, abs=0.03)
    assert (accepted[-1] - accepted[half + 2]) / (drafted[-1] - drafted[half + 2]) == pytest.approx(
        0.05, abs=0.02
    )
    assert change(result) > 2.5


def test_a_delay_in_the_gateway_is_nowhere_in_the_engine() -> None:
    result = run(plan(gateway=Gateway(delay_seconds=step(HALF, 0.001, 0.8))))
    assert change(result, first_seconds) > 8
    assert change(result) == pytest.approx(1.0, rel=0.06)
    late = answered(result, HALF + 10, 2 * HALF)
    assert np.mean([call.connect_seconds for call in late]) == pytest.approx(0.8, rel=0.1)
    outside = run(plan(gateway=Gateway(delay_seconds=constant(0.8), delay_outside=True)))
    assert max(call.connect_seconds for call in answered(outside, 0, 2 * HALF)) == 0
    assert np.mean([c.reached - c.sent for c in answered(outside, 0, 2 * HALF)]) == pytest.approx(
        0.8, rel=0.1
    )


def test_a_full_pool_waits_in_the_gateway_and_times_out_at_a_round_time() -> None:
    result = run(plan(gateway=Gateway(max_in_flight=2, timeout_seconds=8.0)))
    assert result.gateway_in_flight.max() == 2
    assert result.gateway_waiting.max() > 0
    late = [call for call in result.calls if call.http_status == 504]
    # The gateway also counts those that were sent before the window.
    assert len(late) == pytest.approx(result.gateway_504[-1], abs=10)
    assert len(late) > 20
    assert {round(call.closed - call.reached, 6) for call in late} == {8.0}
    assert result.engines[0].gauges["running"].max() <= 2


def test_a_clients_own_limit_is_its_own_wait() -> None:
    result = run(plan(clients=(replace(CLIENT, concurrency=2),)))
    calls = answered(result, 0.0, 2 * HALF)
    assert np.median([call.reached - call.sent for call in calls]) > 5.0
    assert np.median([call.first_token - call.reached for call in calls]) < 0.2
    assert result.gateway_in_flight.max() <= 2


@pytest.mark.parametrize(("seen", "retries"), [(True, 0), (False, 0), (True, 2)])
def test_clients_that_leave(seen: bool, retries: int) -> None:
    client = replace(
        CLIENT, leave_ratio=constant(0.5), patience_seconds=2.0, leave_seen=seen, retries=retries
    )
    result = run(plan(clients=(client,)))
    ends = Counter(call.status for call in result.calls)
    counters = result.engines[0].counters
    assert ends["aborted"] > 0.2 * ends["ok"]
    assert counters["client_aborts"][-1] == pytest.approx(ends["aborted"], abs=8)
    assert counters["finished_abort"][-1] == (counters["client_aborts"][-1] if seen else 0)
    told = sum(call.output_tokens for call in result.calls)
    for_nobody = counters["generation_tokens"][-1] / told
    assert for_nobody > 1.25 if not seen else for_nobody == pytest.approx(1.0, abs=0.03)
    turns = Counter((call.session, call.turn) for call in result.calls)
    assert max(turns.values()) == 1 + retries


def test_aborts_that_leak_raise_the_floor() -> None:
    client = replace(CLIENT, leave_ratio=constant(0.5), patience_seconds=2.0)
    replica = Replica("vllm-0:8000", leak_blocks_per_abort=4.0)
    gauges = run(plan(clients=(client,), replicas=(replica,))).engines[0].gauges["kv_used_ratio"]
    assert gauges[-15:].min() > gauges[:12].max()


def test_a_restart_loses_work_and_cache_and_takes_new_settings() -> None:
    restart = Restart(HALF, 40.0, Settings(max_num_seqs=2), reason="bind", attempts=2)
    replica = Replica("vllm-0:8000", restarts=(restart,))
    result = run(plan(replicas=(replica,), clients=(replace(CLIENT, retries=1),)))
    assert result.restarts == [("vllm-0:8000", HALF, HALF + 40.0)]
    lost = [call for call in result.calls if call.status == "error"]
    assert {call.http_status for call in lost} == {502, 503}
    assert all(HALF <= call.closed <= HALF + 41.0 for call in lost)
    engine = result.engines[0]
    down = (result.times > HALF) & (result.times < HALF + 40.0)
    assert len(set(engine.gauges["running"][down])) == 1
    assert engine.gauges["running"][result.times > HALF + 60.0].max() == 2
    assert sum("address already in use" in text for _, _, text in result.log) == 2


def test_others_take_over_for_a_replica_that_is_down() -> None:
    down = replace(TWO[0], restarts=(Restart(HALF, 280.0),))
    result = run(plan(replicas=(down, TWO[1]), gateway=Gateway(retries=1)))
    during = [call for call in result.calls if HALF + 2 < call.sent < HALF + 270 and call.status == "ok"]
    assert {call.replica for call in during} == {"vllm-1:8000"}
    assert not [call for call in result.calls if call.status == "error" and call.sent > HALF + 2]


def test_pauses_and_hangs_stop_the_tokens() -> None:
    replica = Replica("vllm-0:8000", hangs=((HALF, HALF + 120.0),), hang_spins=True)
    result = run(plan(replicas=(replica,)))
    tokens = result.engines[0].counters["generation_tokens"]
    inside = (result.times > HALF + 1) & (result.times < HALF + 120)
    assert np.ptp(tokens[inside]) == 0
    assert tokens[-1] > tokens[inside][0] + 10_000
    rows = result.cards[0].rows
    busy = (result.times > HALF + 15) & (result.times < HALF + 115)
    assert rows["utilization_ratio"][busy].min() == 1.0
    assert rows["power_watts"][busy].max() < 0.5 * rows["power_watts"][10]
    paused = run(plan(replicas=(Replica("vllm-0:8000", pauses=((HALF, 30.0),)),)))
    gap = paused.engines[0].histograms["inter_token_seconds"][-1]
    assert gap[16:19].sum() > 0  # 10 … 40 s


def test_a_leak_on_the_host_swaps_before_it_kills() -> None:
    host = Host("node-0", leak_bytes=Profile((0.0, 700.0), (0.0, 520e9)))
    rows = run(plan(hosts=(host,))).nodes[0].rows
    assert rows["swap_bytes"][10] == 0
    assert rows["swap_bytes"][-1] > 16e9
    assert rows["major_faults"][-1] > 1000
    assert (np.diff(rows["memory_available_bytes"]) <= 0).all()
    assert rows["oom_kills"][-1] == 1


def test_a_script_is_followed() -> None:
    calls = (
        ScriptedCall(5.0, 500, 20, session="s", head_tokens=100),
        ScriptedCall(30.0, 620, 30, session="s", turn=1, head_tokens=100, history_tokens=420),
        ScriptedCall(40.0, 5000, 500, leave_seconds=1.0),
    )
    result = run(plan(clients=(), script=calls, seconds=100.0))
    assert [call.sent for call in result.calls] == [5.0, 30.0, 40.0]
    assert [call.status for call in result.calls] == ["ok", "ok", "aborted"]
    assert [call.output_tokens for call in result.calls[:2]] == [20, 30]
    assert result.calls[1].cached_tokens == 512
    assert result.calls[2].closed == 41.0
    assert result.engines[0].counters["prompt_tokens"][-1] == 6120
