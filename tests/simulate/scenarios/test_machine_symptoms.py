"""Each cause of machines, hosts and networks is felt when severe, and leaves its trace where it struck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from diag.accuracy.felt import felt
from diag.simulate.observed import Call, Card, Node, Run
from diag.simulate.scenarios import SCENARIOS
from diag.simulate.scenarios.draw import Conditions, Draw, draw_of
from diag.simulate.serving import run

QUIET = Conditions(replicas=(2,), gpus_per_node=(2, 4), confounders=0.0, missing_ratio=0.0)


def _draw(first: int, severity: float = 0.85) -> Draw:
    """The first throw from ``first`` on with the shortest window, cut by a third: tests shall be quick."""
    seed = next(seed for seed in range(first, first + 100) if draw_of(seed, QUIET).seconds == 2400.0)
    drawn = draw_of(seed, QUIET)
    return replace(drawn, severity=severity, seconds=1_600.0, onset=round(drawn.onset * 2 / 3))


@cache  # a run is looked at by several tests, and changed by none
def _run(name: str, first: int = 0) -> Run:
    return run(SCENARIOS[name].plan(_draw(first)))


def _cards(made: Run, *, struck: bool) -> list[Card]:
    names = dict(made.plan.truth.scope).get("gpus", ())
    return [card for card in made.cards if (f"{card.host}/{card.index}" in names) == struck]


def _nodes(made: Run, *, struck: bool) -> list[Node]:
    names = dict(made.plan.truth.scope).get("nodes", ())
    return [node for node in made.nodes if (node.name in names) == struck]


def _growth(made: Run, rows: np.ndarray) -> tuple[float, float]:
    """By how much a counter grew before the onset, and after it."""
    assert made.plan.truth.onset is not None
    at = int(np.searchsorted(made.times, made.plan.truth.onset, side="right")) - 1
    return float(rows[at] - rows[0]), float(rows[-1] - rows[at])


def _means(made: Run, rows: np.ndarray) -> tuple[float, float]:
    """Mean of a gauge before the onset, and in the second half of what follows it."""
    assert made.plan.truth.onset is not None
    at = int(np.searchsorted(made.times, made.plan.truth.onset))
    return float(rows[1:at].mean()), float(rows[(at + rows.size) // 2 :].mean())


def _medians(made: Run, measure: Callable[[Call], float]) -> tuple[float, float]:
    """Median over the calls sent before the onset, and over those sent after it."""
    onset = made.plan.truth.onset
    assert onset is not None
    before = [measure(call) for call in made.calls if 120.0 < call.sent < onset]
    after = [measure(call) for call in made.calls if call.sent >= onset]
    return float(np.nanmedian(before)), float(np.nanmedian(after))


def _total(made: Run, counter: str) -> tuple[float, float]:
    both = [_growth(made, engine.counters[counter]) for engine in made.engines]
    return sum(before for before, _ in both), sum(after for _, after in both)


CAUSES = [name for name, one in SCENARIOS.items() if one.kind in ("cause", "unknown", "double")]
MACHINE = CAUSES[CAUSES.index("thermal_throttle") :]


@pytest.mark.parametrize("name", [name for name in MACHINE if name != "telemetry_fault"])
def test_it_is_felt_when_it_is_severe(name: str) -> None:
    made = _run(name)

    found = felt(made)

    assert found.felt, found
    onset = made.plan.truth.onset
    assert onset is not None
    assert found.onset is not None
    assert found.onset > onset - 60.0


def test_a_fault_of_the_telemetry_hurts_nobody() -> None:
    lying, honest = _run("telemetry_fault"), _run("healthy")

    assert [call.closed for call in lying.calls] == [call.closed for call in honest.calls]
    assert lying.plan.degradation != honest.plan.degradation


def test_heat_takes_the_clock_of_the_struck_cards_only() -> None:
    made = _run("thermal_throttle")

    for card in _cards(made, struck=True):
        before, after = _growth(made, card.rows["thermal_seconds"])
        assert (before, after > 300.0) == (0.0, True)
        clock_before, clock_after = _means(made, card.rows["clock_ratio"])
        assert clock_after < 0.7 < clock_before
    assert all(card.rows["thermal_seconds"][-1] == 0.0 for card in _cards(made, struck=False))


def test_a_cap_takes_the_clock_of_cool_cards() -> None:
    made = _run("power_cap")

    for card in _cards(made, struck=True):
        held = card.rows["power_cap_seconds"] + card.rows["brake_seconds"]
        before, after = _growth(made, held)
        assert (before, after > 300.0) == (0.0, True)
        assert card.rows["celsius"].max() < 75.0


def test_a_neighbour_computes_on_one_card() -> None:
    made = _run("noisy_neighbour")

    (card,) = _cards(made, struck=True)
    before, after = _means(made, card.rows["foreign_sm_ratio"])
    assert (before, after > 0.2) == (0.0, True)
    assert all(other.rows["foreign_sm_ratio"].max() == 0.0 for other in _cards(made, struck=False))


def test_a_failing_card_takes_its_engine_down() -> None:
    made = _run("gpu_hardware_fault")

    assert len(made.restarts) >= 2
    assert {name for name, _, _ in made.restarts} == set(dict(made.plan.truth.scope)["instances"])
    assert min(down for _, down, _ in made.restarts) >= (made.plan.truth.onset or 0.0)


def test_a_bad_link_counts_errors_and_loses_bandwidth() -> None:
    made = _run("gpu_link_degraded")

    (card,) = _cards(made, struck=True)
    assert card.rows["link_ratio"][-1] <= 0.25
    before, after = _growth(made, card.rows["link_errors"])
    assert after > 100.0 > before
    assert all(other.rows["link_ratio"].min() == 1.0 for other in _cards(made, struck=False))


def test_a_slow_card_draws_fewer_watts_at_the_same_clock() -> None:
    made = _run("slow_gpu")

    (card,) = _cards(made, struck=True)
    watts_before, watts_after = _means(made, card.rows["power_watts"])
    clock_before, clock_after = _means(made, card.rows["clock_ratio"])
    assert watts_after < 0.75 * watts_before
    assert clock_after == pytest.approx(clock_before, abs=0.01)


@pytest.mark.parametrize("first", [0, 100])
def test_a_starved_host_shows_pressure_or_throttling(first: int) -> None:
    made = _run("host_cpu_starvation", first)

    (node,) = _nodes(made, struck=True)
    shortage = node.rows["cpu_throttled_ratio"] + node.rows["cpu_pressure_ratio"]
    before, after = _means(made, shortage)
    assert after > 0.3 > 0.05 > before


def test_a_misplaced_process_reads_far_memory() -> None:
    made = _run("numa_misplacement")

    (node,) = _nodes(made, struck=True)
    before, after = _means(made, node.rows["far_ratio"])
    assert after > 0.7 > 0.1 > before


def test_a_leak_ends_in_major_faults() -> None:
    made = _run("host_memory_leak")

    (node,) = _nodes(made, struck=True)
    before, after = _growth(made, node.rows["major_faults"])
    assert after > 10_000.0
    assert before == 0.0
    assert node.rows["memory_available_bytes"][-1] < 0.05 * made.plan.hosts[0].memory_bytes


def test_network_time_is_not_engine_time() -> None:
    made = _run("network_latency")

    client_before, client_after = _medians(made, lambda call: call.arrived - call.sent)
    engine_before, engine_after = _medians(made, lambda call: call.first_token - call.arrived)
    assert client_after > client_before + 0.3
    assert engine_after < 1.3 * engine_before


@pytest.mark.parametrize("first", [0, 100])
def test_a_proxy_holds_requests_or_cuts_them_off(first: int) -> None:
    made = _run("proxy_limit", first)

    waiting, cut = _means(made, made.gateway_waiting), _growth(made, made.gateway_504)
    assert (waiting[0], cut[0]) == (0.0, 0.0)
    assert waiting[1] > 0.5 or cut[1] > 20


def test_a_client_keeps_its_own_requests_waiting() -> None:
    made = _run("client_limit")
    (tenant,) = dict(made.plan.truth.scope)["tenants"]

    own = _medians(made, lambda call: call.reached - call.sent if call.tenant == tenant else np.nan)
    others = _medians(made, lambda call: call.reached - call.sent if call.tenant != tenant else np.nan)
    assert own[1] > own[0] + 0.3
    assert others[1] < 0.1


def test_flaps_fail_transfers_and_other_failures_leave_the_links_up() -> None:
    flapping, failing = _run("fabric_flap"), _run("kv_transfer_failure")

    for made in (flapping, failing):
        before, after = _total(made, "transfer_failures")
        assert (before, after > 30.0) == (0.0, True)
    (node,) = _nodes(flapping, struck=True)
    assert _growth(flapping, node.rows["fabric_downs"])[1] >= 2
    assert all(node.rows["fabric_downs"][-1] == 0.0 for node in failing.nodes)


def test_peers_look_in_vain_in_a_restarted_cache() -> None:
    made = _run("stale_cache_peer")

    before, after = _total(made, "lookup_misses")
    assert (before, after > 50.0) == (0.0, True)


def test_a_hot_spot_has_most_of_the_work() -> None:
    made = _run("routing_hotspot")

    spread = np.array(
        [_means(made, engine.gauges["running"] + engine.gauges["waiting"]) for engine in made.engines]
    )
    shares = spread / spread.sum(axis=0)
    assert shares[:, 1].max() > 0.7
    assert shares[:, 0].max() < 0.6


@pytest.mark.parametrize("name", ["unknown_slow", "unknown_front", "unknown_stall"])
def test_what_is_unknown_leaves_no_trace_of_a_known_cause(name: str) -> None:
    made = _run(name)

    for card in made.cards:
        assert card.rows["clock_ratio"].min() > 0.97
        assert card.rows["thermal_seconds"][-1] == card.rows["brake_seconds"][-1] == 0.0
        assert card.rows["foreign_sm_ratio"].max() == 0.0
    for node in made.nodes:
        assert node.rows["major_faults"][-1] == node.rows["cpu_throttled_ratio"].max() == 0.0
    assert made.restarts == []
    assert _total(made, "preemptions") == (0.0, 0.0)
