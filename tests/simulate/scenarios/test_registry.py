"""Every scenario of the catalogue: it builds, it repeats itself, and its label is one that can be scored."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from diag.simulate.plan import Plan
from diag.simulate.scenarios import SCENARIOS
from diag.simulate.scenarios.draw import FAMILIES, draw_of

HYPOTHESES = tuple(
    """
context_growth kv_cache_exhaustion prefix_cache_off prefix_cache_broken prefix_cache_scattered load_burst
head_of_line_blocking prefill_interference tenant_dominance abandoned_requests long_outputs sequence_limit
oversized_request engine_stall kv_block_leak cuda_graph_gap spec_decode_collapse grammar_stall engine_restart
port_conflict config_change thermal_throttle power_cap noisy_neighbour gpu_hardware_fault gpu_link_degraded
slow_gpu host_cpu_starvation runtime_pauses numa_misplacement host_memory_leak network_latency proxy_limit
client_limit fabric_flap kv_transfer_failure stale_cache_peer routing_hotspot telemetry_fault
""".split()  # noqa: SIM905
)
SEEDS = range(8)


def test_there_is_a_scenario_for_each_hypothesis_and_others_besides() -> None:
    kinds = Counter(scenario.kind for scenario in SCENARIOS.values())

    assert sorted(s.hypothesis for s in SCENARIOS.values() if s.kind == "cause") == sorted(HYPOTHESES)
    assert all(scenario.hypothesis == "" for scenario in SCENARIOS.values() if scenario.kind != "cause")
    assert set(kinds) == {"cause", "healthy", "unknown", "double"}
    assert min(kinds["healthy"], kinds["unknown"]) >= 2
    assert all(key == scenario.id for key, scenario in SCENARIOS.items())


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_seed_is_an_incident(name: str) -> None:
    scenario = SCENARIOS[name]

    plans = [scenario.plan(draw_of(seed)) for seed in SEEDS]

    assert plans == [scenario.plan(draw_of(seed)) for seed in SEEDS]
    assert len({plan.replicas for plan in plans}) == len(plans)


@pytest.mark.parametrize("family", ["test", "shifted"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_its_label_can_be_scored(name: str, family: str) -> None:
    scenario = SCENARIOS[name]

    for seed in SEEDS:
        plan = scenario.plan(draw_of(seed, FAMILIES[family]))
        truth = plan.truth
        if scenario.kind == "healthy":
            assert (truth.causes, truth.leading, truth.onset) == ((), None, None)
            continue
        assert truth.leading == truth.causes[0]
        assert truth.onset is not None
        assert 0.4 * plan.seconds < truth.onset < 0.95 * plan.seconds
        assert truth.leading in {"cause": {scenario.hypothesis}, "unknown": {"unknown"}}.get(
            scenario.kind, set(HYPOTHESES)
        )
        assert set(truth.causes) | set(truth.accept) <= {*HYPOTHESES, "unknown"}
        _assert_scope_exists(plan)


def _assert_scope_exists(plan: Plan) -> None:
    there = {
        "instances": {replica.name for replica in plan.replicas},
        "nodes": {host.name for host in plan.hosts},
        "gpus": {f"{replica.host}/{gpu}" for replica in plan.replicas for gpu in replica.gpus},
        "tenants": {client.tenant for client in plan.clients},
    }
    for kind, names in plan.truth.scope:
        assert names, kind
        assert set(names) <= there[kind]


def test_unknown_is_seldom_right_where_there_is_a_cause() -> None:
    # Where nothing that decides is exported it has to be, but a corpus of such cases would prove nothing.
    accepted = [
        "unknown" in scenario.plan(draw_of(seed, FAMILIES["test"])).truth.accept
        for scenario in SCENARIOS.values()
        if scenario.kind == "cause"
        for seed in range(15)
    ]

    assert 0 < sum(accepted) <= 0.1 * len(accepted)


def test_a_double_names_both_and_accepts_either() -> None:
    for seed in range(20):
        truth = SCENARIOS["double"].plan(draw_of(seed)).truth
        assert len(truth.causes) >= 2
        assert truth.causes[1] in truth.accept
        assert truth.severity >= 0.55


def test_a_cause_begins_at_the_onset() -> None:
    """Before it the plan is the healthy one: with the onset beyond the window nothing has happened yet."""
    for name in ("thermal_throttle", "power_cap", "slow_gpu", "gpu_link_degraded", "host_cpu_starvation"):
        draw = draw_of(3)
        plan = SCENARIOS[name].plan(replace(draw_of(3), severity=1.0))
        acting = [
            getattr(thing, field)
            for thing, fields in (
                *((gpu, ("resistance", "power_limit_ratio", "clock_cap_ratio", "slow_factor", "link_ratio"))
                  for _, gpu in plan.cards),
                *((host, ("cpu_quota_ratio",)) for host in plan.hosts),
            )
            for field in fields
        ]  # fmt: skip
        assert all(profile.at(draw.onset - 1.0) == 1.0 for profile in acting), name
