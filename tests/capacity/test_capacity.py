"""The arithmetic rows of the worked figures: KV bytes, pools, eviction, queues and odds."""

from __future__ import annotations

from statistics import mean

import pytest

from diag.capacity.eviction import break_even_bytes_per_second, recompute_seconds, swap_seconds
from diag.capacity.kv import Architecture, Pool
from diag.capacity.odds import (
    any_clash_ratio,
    belief_suspect_until,
    busy_port_ratio,
    misplacement_loss_ratio,
)
from diag.capacity.queueing import completions, joined_wait_ratio, mm1_wait, saturation_load
from diag.errors import UsageError

LLAMA_8B = Architecture(layers=32, kv_heads=8, head_size=128)
PREFILL_TOKEN = 16e-6
PCIE = 50e9


def test_a_token_of_llama_8b_takes_128_kib() -> None:
    assert LLAMA_8B.kv_bytes_per_token == 128 * 1024


def test_an_abandoned_answer_holds_131_mb_instead_of_39() -> None:
    assert LLAMA_8B.kv_bytes(1000) / 1e6 == pytest.approx(131.07, abs=0.005)
    assert LLAMA_8B.kv_bytes(300) / 1e6 == pytest.approx(39.32, abs=0.005)


def test_a_13b_model_with_full_heads_cannot_hold_ninety_thousand_tokens_on_one_card() -> None:
    full_heads = Architecture(layers=40, kv_heads=40, head_size=128)

    assert full_heads.kv_bytes_per_token == 800 * 1024
    assert full_heads.kv_bytes(90_000) / 1e9 == pytest.approx(73.7, abs=0.05)


def test_recomputing_two_thousand_tokens_costs_32_ms_and_swapping_them_5() -> None:
    recompute = recompute_seconds(2000, PREFILL_TOKEN)
    swap = swap_seconds(2000, LLAMA_8B.kv_bytes_per_token, PCIE)

    assert LLAMA_8B.kv_bytes(2000) / 1e6 == pytest.approx(262.14, abs=0.005)
    assert recompute == pytest.approx(0.032)
    assert swap == pytest.approx(0.00524, abs=5e-6)
    assert recompute / swap == pytest.approx(6.1, abs=0.05)


def test_swapping_out_and_back_still_wins_by_three() -> None:
    both = swap_seconds(2000, LLAMA_8B.kv_bytes_per_token, PCIE, ways=2)

    assert both == pytest.approx(0.01049, abs=5e-6)
    assert recompute_seconds(2000, PREFILL_TOKEN) / both == pytest.approx(3.05, abs=0.005)


@pytest.mark.parametrize(("ways", "rate"), [(1, 8.2e9), (2, 16.4e9)])
def test_recompute_and_swap_cost_the_same_at_the_break_even_rate(ways: int, rate: float) -> None:
    exact = break_even_bytes_per_second(LLAMA_8B.kv_bytes_per_token, PREFILL_TOKEN, ways=ways)

    assert exact == pytest.approx(rate, rel=0.005)
    assert swap_seconds(777, LLAMA_8B.kv_bytes_per_token, exact, ways=ways) == pytest.approx(
        recompute_seconds(777, PREFILL_TOKEN)
    )


def test_twenty_four_sessions_at_the_cap_need_96_gib() -> None:
    tokens = 24 * 32_768

    assert tokens == 786_432
    assert LLAMA_8B.kv_bytes(32_768) == 4 * 2**30
    assert LLAMA_8B.kv_bytes(tokens) == 96 * 2**30
    assert Pool(tokens // 16).sessions_of(32_768) == 24


def test_a_begun_block_counts_whole() -> None:
    pool = Pool(blocks=10)

    assert pool.tokens == 160
    assert pool.blocks_of(17) == 2
    assert pool.sessions_of(17) == 5
    assert pool.fits(160)
    assert not pool.fits(161)
    assert pool.sessions_of(161) == 0


def test_a_long_head_makes_the_mean_completion_1100_instead_of_500() -> None:
    long_first, shortest_first = completions([1000, 100, 100]), completions([100, 100, 1000])

    assert long_first == (1000, 1100, 1200)
    assert shortest_first == (100, 200, 1200)
    assert mean(long_first) == 1100
    assert mean(shortest_first) == 500


@pytest.mark.parametrize(("efficiency", "ratio"), [(1.0, 0.50), (0.98, 0.55), (0.95, 0.63)])
def test_two_joined_cards_wait_half_as_long_unless_communication_takes_it(
    efficiency: float, ratio: float
) -> None:
    assert joined_wait_ratio(0.7, efficiency) == pytest.approx(ratio, abs=0.005)


def test_joined_cards_carry_twice_the_traffic_only_if_they_were_half_empty() -> None:
    assert saturation_load(0.98) == pytest.approx(0.49)
    assert saturation_load(0.95) == pytest.approx(0.475)


@pytest.mark.parametrize("load", [-0.1, 1.0, 1.4])
def test_a_full_queue_is_refused(load: float) -> None:
    with pytest.raises(UsageError, match="no stable queue"):
        mm1_wait(load)


def test_ports_drawn_at_random_clash_in_one_of_seventy_starts_of_eight() -> None:
    assert any_clash_ratio(8, 12_300, 14_300) == pytest.approx(0.0139, abs=5e-5)
    assert busy_port_ratio(10, 12_300, 14_300) == pytest.approx(0.0050, abs=5e-5)
    assert any_clash_ratio(3, 1, 2) == 1.0


@pytest.mark.parametrize(("nodes", "loss"), [(2, 0.125), (8, 0.219)])
def test_random_placement_loses_part_of_the_quarter(nodes: int, loss: float) -> None:
    assert misplacement_loss_ratio(nodes, 0.25) == pytest.approx(loss, abs=5e-4)


def test_a_dead_clients_cache_is_believed_in_for_two_hours() -> None:
    assert belief_suspect_until(1_000.0, 120 * 60) == 8_200.0
