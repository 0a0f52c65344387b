"""The healthy service: loaded as it says, and its oddities keep away from the onset."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diag.simulate.plan import Client, Lengths, Machine, Plan, Settings
from diag.simulate.profiles import constant, product, ramp, step
from diag.simulate.scenarios.confounders import CONFOUNDERS, spare_card
from diag.simulate.scenarios.draw import FAMILIES, Conditions, Draw, draw_of
from diag.simulate.scenarios.machines import (
    Work,
    capacity_per_second,
    in_flight,
    load_ratio,
    offered_per_second,
    running,
    work,
)
from diag.simulate.scenarios.service import healthy

SEEDS = range(40)


def _draws() -> list[Draw]:
    return [draw_of(seed, FAMILIES[family]) for family in ("test", "shifted") for seed in SEEDS]


def test_it_is_busy_but_not_full() -> None:
    loads = [load_ratio(healthy(draw)) for draw in _draws()]

    assert 0.25 < min(loads) < max(loads) < 0.75
    assert 0.35 < np.median(loads) < 0.6


def test_an_incident_has_some_thousand_requests() -> None:
    plans = [healthy(draw) for draw in _draws()]
    counts = [offered_per_second(plan) * plan.seconds for plan in plans]

    assert 1_000 < min(counts) < max(counts) < 13_000
    assert 1_500 < np.median(counts) < 9_000


def test_the_pool_holds_the_usual_batch_and_the_longest_prompt() -> None:
    for draw in _draws():
        plan = healthy(draw)
        tokens = plan.replicas[0].settings.kv_blocks * 16
        longest = max(client.message_tokens.most + client.head_tokens for client in plan.clients)
        context = work(plan.clients, True).context
        assert longest < tokens
        assert in_flight(plan) / len(plan.replicas) * context < 0.6 * tokens


def test_topologies_vary_and_no_gpu_serves_twice() -> None:
    plans = [healthy(draw) for draw in _draws()]

    for plan in plans:
        seats = [(replica.host, gpu) for replica in plan.replicas for gpu in replica.gpus]
        assert len(seats) == len(set(seats))
        assert {host for host, _ in seats} == {host.name for host in plan.hosts}
        assert all(len(replica.gpus) == replica.settings.tensor_parallel for replica in plan.replicas)
    assert {len(plan.replicas) for plan in plans} >= {1, 2, 3, 5, 6, 8}
    assert {replica.settings.tensor_parallel for plan in plans for replica in plan.replicas} == {1, 2, 4}
    assert {plan.shown.engine for plan in plans} == {"vllm", "sglang"}


@pytest.mark.parametrize(("least_replicas", "least_hosts"), [(2, 1), (1, 2), (3, 2)])
def test_a_scenario_gets_the_topology_that_it_needs(least_replicas: int, least_hosts: int) -> None:
    for draw in _draws():
        plan = healthy(draw, parallel=(2, 4), least_replicas=least_replicas, least_hosts=least_hosts)
        assert len(plan.replicas) >= least_replicas
        assert len(plan.hosts) >= least_hosts
        assert all(len(replica.gpus) in (2, 4) for replica in plan.replicas)


def test_gaps_and_resets_keep_clear_of_the_onset() -> None:
    gaps, resets = 0, 0
    for seed in range(300):
        draw = draw_of(seed, FAMILIES["shifted"])
        plan = healthy(draw)
        for start, end in plan.degradation.gaps:
            gaps += 1
            assert end <= draw.onset - 300.0 or start >= draw.onset + 300.0
            assert 0.0 < start < end <= plan.seconds
        for replica in plan.replicas:
            for restart in replica.restarts:
                resets += 1
                assert restart.time < draw.onset - 300.0
    assert gaps > 5
    assert resets > 5


def test_exporters_are_missing_as_often_as_the_conditions_say() -> None:
    conditions = Conditions(missing_ratio=0.3)
    plans = [healthy(draw_of(seed, conditions)) for seed in range(300)]

    assert 0.2 < np.mean([not plan.shown.gpu for plan in plans]) < 0.4
    assert 0.2 < np.mean([not plan.shown.node for plan in plans]) < 0.4
    unseen = [not plan.shown.records and not plan.shown.gateway_log for plan in plans]
    assert 0.2 < np.mean(unseen) < 0.4
    assert not any(plan.shown.records and plan.shown.gateway_log for plan in plans)


@pytest.mark.parametrize("confounder", CONFOUNDERS, ids=lambda one: one.__name__)
def test_each_confounder_changes_something(confounder: object) -> None:
    assert callable(confounder)
    conditions = Conditions(confounders=0.0, replicas=(3, 4), gpus_per_node=(4,))
    changed = 0
    for seed in range(30):
        draw = draw_of(seed, conditions)
        plan = healthy(draw)
        after: Plan = confounder(plan, draw)
        changed += after != plan
        assert load_ratio(after, draw.seconds) < 0.8
        assert after.truth == plan.truth
    assert changed >= 5


def test_jobs_of_others_run_beside_the_service() -> None:
    for draw in _draws():
        plan = healthy(draw)
        place = spare_card(plan, draw)
        served = {(replica.host, gpu) for replica in plan.replicas for gpu in replica.gpus}
        assert place not in served
        for where, gpu in plan.cards:
            assert where not in served or gpu.foreign_sm_ratio.still


def test_capacity_is_what_the_work_leaves() -> None:
    machine = Machine("m", 0.0, 1e-4, 0.0, 0.02, 0.001, 0.0)
    asked = Work(1.0, computed=1_000.0, context=1_200.0, output=100.0)

    # 0.1 s of prefill, and 100 tokens at a 48th of 20 ms + 1 ms each.
    assert capacity_per_second(machine, Settings(), asked) == pytest.approx(
        1 / (0.1 + 100 * (0.02 / 48 + 0.001))
    )
    # 50 tokens a second in 95 % of the time, at 20 ms + 1 ms a sequence: b = 50·(0.02 + 0.001·b) / 0.95.
    batch = running(machine, asked, 0.5)
    assert batch == pytest.approx(50 * (0.02 + 0.001 * batch) / 0.95)


def test_work_counts_turns_and_what_the_cache_saves() -> None:
    client = Client(
        sessions_per_second=constant(0.5),
        turns=Lengths(3.0, 0.0),
        head_tokens=400,
        message_tokens=Lengths(100.0, 0.0),
        output_tokens=Lengths(50.0, 0.0),
    )

    cached, plain = work((client,), True), work((client,), False)

    assert cached.requests_per_second == pytest.approx(1.5)
    assert cached.computed == pytest.approx(100.0)
    assert plain.computed == pytest.approx(400 + 150 + 100)
    assert plain.context == pytest.approx(400 + 150 + 100 + 25)
    stamped = replace(client, head_stable_ratio=constant(0.0))
    assert work((stamped,), True).computed == pytest.approx(plain.computed)


def test_profiles_multiply_point_by_point() -> None:
    made = product(step(10.0, 1.0, 3.0), ramp(5.0, 15.0, 2.0, 4.0))

    assert [made.at(time) for time in (0.0, 5.0, 10.0, 15.0, 20.0)] == [2.0, 2.0, 9.0, 12.0, 12.0]
    assert made.before(10.0) == 3.0
    assert made.before(12.5) == made.at(12.5)
