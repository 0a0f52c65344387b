"""Cards are complete, and every cue has a weight that straddles even odds, both ways."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module

import pytest

from diag.hypotheses import CARDS, HYPOTHESES
from diag.signals import SIGNALS
from diag.triage.weights import WEIGHTS, Weight

# The public catalogue, the rooms yet to come among them.
CATALOGUE = {
    "context_growth", "kv_cache_exhaustion", "prefix_cache_off", "prefix_cache_broken",
    "prefix_cache_scattered", "load_burst", "head_of_line_blocking", "prefill_interference",
    "tenant_dominance", "abandoned_requests", "long_outputs", "sequence_limit", "oversized_request",
    "engine_stall", "kv_block_leak", "cuda_graph_gap", "spec_decode_collapse", "grammar_stall",
    "engine_restart", "port_conflict", "config_change", "thermal_throttle", "power_cap",
    "noisy_neighbour", "gpu_hardware_fault", "gpu_link_degraded", "slow_gpu", "host_cpu_starvation",
    "runtime_pauses", "numa_misplacement", "host_memory_leak", "network_latency", "proxy_limit",
    "client_limit", "fabric_flap", "kv_transfer_failure", "stale_cache_peer", "routing_hotspot",
    "telemetry_fault", "unknown",
}  # fmt: skip
CORE = {
    "context_growth", "kv_cache_exhaustion", "prefix_cache_off", "load_burst", "head_of_line_blocking",
    "config_change", "thermal_throttle", "power_cap", "noisy_neighbour", "host_memory_leak",
    "network_latency", "telemetry_fault", "unknown",
}  # fmt: skip
IDS = [h.card.id for h in HYPOTHESES]
SPEAKERS = {"stated", "rises", "falls", "flat"}
ROWS = [pytest.param(row, id=f"{id}-{cue}") for id in WEIGHTS for cue, row in WEIGHTS[id].items()]


def cues_of(id: str) -> set[str]:
    """The cues a room's source can yield: the first argument of each call that makes evidence."""
    tree = ast.parse(inspect.getsource(import_module(f"diag.hypotheses.{id}")))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in SPEAKERS]
    first = [call.args[0] for call in named]
    assert all(isinstance(one, ast.Constant) for one in first), f"{id} hides the name of a cue"
    return {str(one.value) for one in first if isinstance(one, ast.Constant)}


def test_the_catalogue_holds_every_card_and_the_core_has_one() -> None:
    assert set(CARDS) <= CATALOGUE
    assert set(CARDS) >= CORE
    assert set(IDS) == set(WEIGHTS)
    assert len(IDS) == len(set(IDS))


@pytest.mark.parametrize("id", IDS)
def test_each_cue_has_a_weight_and_each_weight_a_cue(id: str) -> None:
    assert cues_of(id) == set(WEIGHTS[id])


@pytest.mark.parametrize("row", ROWS)
def test_a_weight_straddles_even_odds_and_says_why(row: Weight) -> None:
    assert row.when_true > 1 > row.when_false > 0
    assert row.reason


@pytest.mark.parametrize("id", IDS)
def test_each_hypothesis_has_a_driver_that_is_no_mere_consequence(id: str) -> None:
    drivers = [row for row in WEIGHTS[id].values() if row.driver]
    assert drivers
    assert not any(row.root for row in drivers)
    # Without its mechanism a cause must be hard to believe.
    assert min(row.when_false for row in drivers) <= 0.1


@pytest.mark.parametrize("id", sorted(CARDS))
def test_a_card_is_complete(id: str) -> None:
    card = CARDS[id]
    assert card.id == id
    assert card.title
    assert card.mechanism.endswith(".")
    assert card.signs
    assert card.rules_out
    assert card.next_check.endswith(".")
    assert card.mitigations[0].safe
    assert all(one.text for one in card.mitigations)
    assert set(card.look_alikes) | set(card.leads_to) <= CATALOGUE - {"unknown", id}
    assert all(card.look_alikes.values())
    assert set(card.chain) <= set(SIGNALS)
    assert len(card.chain) == len(set(card.chain))


@pytest.mark.parametrize("id", IDS)
def test_a_judged_card_tells_its_look_alikes_and_a_chain_that_ends_in_what_users_feel(id: str) -> None:
    card = CARDS[id]
    assert card.look_alikes
    assert len(card.chain) >= 2 or id == "telemetry_fault"


def test_the_chains_that_must_be_told_as_chains_can_be() -> None:
    leads_to = {id: set(card.leads_to) for id, card in CARDS.items()}
    assert "kv_cache_exhaustion" in leads_to["context_growth"]
    assert "kv_cache_exhaustion" in leads_to["load_burst"]
    assert "kv_cache_exhaustion" in leads_to["config_change"]
    growth = CARDS["context_growth"].chain
    told = [
        "prompt_tokens_per_request_mean",
        "kv_cache_usage_ratio",
        "preemptions_per_second",
        "ttft_seconds_mean",
    ]
    assert [signal for signal in growth if signal in told] == told
