"""Who is sent where, and what a prefix is worth to whoever gets it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from diag.simulate.observed import Run
from diag.simulate.plan import Balancing, Fabric, Gateway, Host, Replica
from diag.simulate.profiles import constant
from diag.simulate.serving import run

from .conftest import CLIENT, HALF, TWO, answered, plan


def shares(result: Run) -> list[float]:
    counts = Counter(call.replica for call in result.calls)
    return [counts[replica.name] / counts.total() for replica in result.plan.replicas]


def homes(result: Run) -> int:
    """Most replicas that a session met."""
    met: dict[str, set[str]] = {}
    for call in result.calls:
        met.setdefault(call.session, set()).add(call.replica)
    return max(len(names) for names in met.values())


def hit_ratio(result: Run) -> float:
    counters = [engine.counters for engine in result.engines]
    return float(sum(c["hits_tokens"][-1] for c in counters) / sum(c["queries_tokens"][-1] for c in counters))


def test_balancing() -> None:
    results = {kind: run(plan(replicas=TWO, gateway=Gateway(balancing=((0.0, kind),)))) for kind in Balancing}
    assert shares(results[Balancing.ROUND_ROBIN]) == pytest.approx([0.5, 0.5], abs=0.01)
    assert shares(results[Balancing.LEAST_LOADED]) == pytest.approx([0.5, 0.5], abs=0.1)
    assert shares(results[Balancing.STICKY]) == pytest.approx([0.5, 0.5], abs=0.12)
    assert homes(results[Balancing.STICKY]) == 1
    assert homes(results[Balancing.ROUND_ROBIN]) == 2
    assert hit_ratio(results[Balancing.STICKY]) > hit_ratio(results[Balancing.ROUND_ROBIN]) + 0.1
    assert hit_ratio(results[Balancing.CACHE_AWARE]) > hit_ratio(results[Balancing.ROUND_ROBIN]) + 0.1


@pytest.mark.parametrize(("weight", "low", "high"), [(0.3, 0.4, 0.6), (0.99, 0.9, 1.0)])
def test_a_router_that_looks_at_prefixes_alone_makes_a_hot_spot(
    weight: float, low: float, high: float
) -> None:
    gateway = Gateway(
        balancing=((0.0, Balancing.ROUND_ROBIN), (HALF, Balancing.CACHE_AWARE)), affinity_weight=weight
    )
    result = run(plan(replicas=TWO, gateway=gateway))
    before = Counter(call.replica for call in result.calls if call.sent < HALF)
    after = Counter(call.replica for call in result.calls if call.sent > HALF)
    assert max(before.values()) / before.total() == pytest.approx(0.5, abs=0.02)
    assert low <= max(after.values()) / after.total() <= high


def test_a_head_that_is_never_the_same_hits_nothing() -> None:
    broken = run(plan(clients=(replace(CLIENT, head_stable_ratio=constant(0.0)),)))
    assert hit_ratio(broken) == 0.0
    assert hit_ratio(run(plan())) > 0.4


def fabric(**acts: object) -> Run:
    replicas = (Replica("v0:1", host="a"), Replica("v1:1", host="b"))
    scattered = Gateway(balancing=((0.0, Balancing.ROUND_ROBIN),))
    return run(
        plan(
            replicas=replicas, hosts=(Host("a"), Host("b")), gateway=scattered, fabric=Fabric(**acts),  # type: ignore[arg-type]
        )
    )  # fmt: skip


def test_a_prefix_that_another_replica_holds_is_fetched() -> None:
    result = fabric()
    for engine in result.engines:
        assert engine.counters["external_tokens"][-1] > 0.05 * engine.counters["prompt_tokens"][-1]
        assert engine.counters["transfers"][-1] > 20
        assert engine.counters["transfer_failures"][-1] == 0


def test_a_flap_fails_transfers_while_it_lasts_and_they_are_computed() -> None:
    result = fabric(flaps=((HALF, HALF + 200.0, "a"),))
    failures = np.sum([engine.counters["transfer_failures"] for engine in result.engines], axis=0)
    before, after = failures[result.times < HALF], failures[result.times > HALF + 215.0]
    assert before.max() == 0
    assert np.ptp(after) == 0
    assert after[0] > 10
    assert result.nodes[0].rows["fabric_downs"][-1] == 1
    assert result.nodes[1].rows["fabric_downs"][-1] == 0
    slow = [c for c in answered(result, HALF, HALF + 190.0) if c.scheduled - c.queued > 1.0]
    assert len(slow) > 5


def test_a_stale_peer_is_asked_in_vain() -> None:
    result = fabric(stale=((HALF, 2 * HALF, "v0:1"),))
    misses = [engine.counters["lookup_misses"] for engine in result.engines]
    assert misses[0][result.times < HALF].max() == 0
    assert misses[0][-1] == misses[1][-1] > 10
