"""Every scenario of traffic and engine is one incident a seed, whole, and hurts by its own mechanism."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import pairwise

import pytest

from diag.simulate.plan import Plan
from diag.simulate.profiles import Profile
from diag.simulate.scenarios.causes_traffic import TRAFFIC
from diag.simulate.scenarios.draw import SHIFTED, STANDARD, Conditions, Scenario, draw_of

SEEDS = range(8)
WITH_CHANGE = {"kv_cache_exhaustion", "prefix_cache_off", "sequence_limit", "cuda_graph_gap"}


def _profiles(record: object) -> Iterator[Profile]:
    if isinstance(record, Profile):
        yield record
    elif isinstance(record, tuple):
        for item in record:
            yield from _profiles(item)
    elif is_dataclass(record):
        for field in fields(record):
            yield from _profiles(getattr(record, field.name))


@pytest.fixture(params=TRAFFIC, ids=lambda scenario: scenario.id)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    """Each of them."""
    found: Scenario = request.param
    return found


@pytest.mark.parametrize("conditions", [STANDARD, SHIFTED], ids=["standard", "shifted"])
def test_a_seed_is_an_incident(scenario: Scenario, conditions: Conditions) -> None:
    plans = [scenario.plan(draw_of(seed, conditions)) for seed in SEEDS]

    assert plans == [scenario.plan(draw_of(seed, conditions)) for seed in SEEDS]
    assert len({plan.replicas for plan in plans}) > len(SEEDS) / 2


def test_it_is_labelled_by_its_hypothesis(scenario: Scenario) -> None:
    for seed in SEEDS:
        draw = draw_of(seed)
        truth = scenario.plan(draw).truth
        assert truth.leading == truth.causes[0] == scenario.hypothesis
        assert truth.onset == draw.onset
        assert truth.severity == draw.severity


def test_it_names_only_what_is_there(scenario: Scenario) -> None:
    for seed in SEEDS:
        plan = scenario.plan(draw_of(seed))
        scope = dict(plan.truth.scope)
        tenants = {client.tenant for client in plan.clients} | {call.tenant for call in plan.script}
        assert set(scope.get("instances", ())) <= {replica.name for replica in plan.replicas}
        assert set(scope.get("tenants", ())) <= tenants


def test_its_profiles_and_restarts_are_in_order(scenario: Scenario) -> None:
    for seed in SEEDS:
        plan = scenario.plan(draw_of(seed))
        for profile in _profiles(plan):
            assert list(profile.times) == sorted(profile.times)
            assert all(math.isfinite(value) and value >= 0 for value in profile.values)
        for replica in plan.replicas:
            ends = [(one.time, one.time + one.down_seconds) for one in replica.restarts]
            assert all(a[1] <= b[0] for a, b in pairwise(ends))
            assert all(one.down_seconds > 0 for one in replica.restarts)


@pytest.mark.parametrize(
    "served", [one for one in TRAFFIC if one.id != "oversized_request"], ids=lambda scenario: scenario.id
)
def test_every_prompt_can_be_served(served: Scenario) -> None:
    for seed in SEEDS:
        plan = served.plan(draw_of(seed))
        for replica in plan.replicas:
            settings = [replica.settings, *(one.settings for one in replica.restarts if one.settings)]
            pool = min(one.kv_blocks * one.block_size_tokens for one in settings)
            for client in plan.clients:
                assert client.head_tokens + client.message_tokens.median < pool, (seed, client.tenant)


def test_the_oversized_prompt_is_larger_than_the_pool_and_not_than_the_model() -> None:
    scenario = next(one for one in TRAFFIC if one.id == "oversized_request")
    for seed in SEEDS:
        plan = scenario.plan(draw_of(seed))
        settings = plan.replicas[0].settings
        assert plan.script
        for call in plan.script:
            assert settings.kv_blocks * settings.block_size_tokens < call.prompt_tokens
            assert call.prompt_tokens + call.output_tokens < settings.max_model_len_tokens


def test_a_change_that_set_the_limit_is_right_too() -> None:
    for scenario in TRAFFIC:
        accepted = [scenario.plan(draw_of(seed)).truth.accept for seed in SEEDS]
        assert any("config_change" in accept for accept in accepted) == (scenario.id in WITH_CHANGE)


def test_unknown_is_right_only_where_what_decides_is_missing() -> None:
    """Over all scenarios at most a tenth, and never without a note."""
    plans: list[Plan] = [scenario.plan(draw_of(seed)) for scenario in TRAFFIC for seed in SEEDS]
    blind = [plan for plan in plans if "unknown" in plan.truth.accept]

    assert 0 < len(blind) <= 0.1 * len(plans)
    assert all("Missing on purpose" in plan.notes for plan in blind)
