"""The serving engine's run, shown and triaged: a healthy service is accused of nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diag.api import check, triage
from diag.simulate.observed import Run
from diag.simulate.parts import Bundle, save
from diag.simulate.plan import Client, Host, Plan, Replica, Restart, Settings
from diag.simulate.profiles import constant
from diag.simulate.serving import run
from diag.simulate.telemetry import show


@pytest.fixture(scope="module")
def served() -> Run:
    """Two replicas that serve a calm half hour."""
    return run(
        Plan(
            name="calm",
            seed=11,
            seconds=2400.0,
            hosts=(Host("node-0", cpus=16),),
            replicas=(Replica("vllm-0:8000", gpus=(0,)), Replica("vllm-1:8000", gpus=(1,))),
            clients=tuple(Client(tenant, constant(0.13)) for tenant in ("t-a", "t-b")),
        )
    )


@pytest.fixture(scope="module")
def folder(served: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a bundle."""
    return save(show(served), tmp_path_factory.mktemp("calm"))


def _sum(bundle: Bundle, name: str) -> float:
    return sum(float(series.values[-1] - series.values[0]) for series in bundle.series(name))


def test_nobody_is_accused(folder):
    assert triage(folder).leading is None


def test_every_kind_of_signal_is_found(folder):
    found = check(folder)
    assert {one.producer for one in found.present} >= {"vllm", "llmdiag", "node", "process", "kubernetes"}
    assert found.requests is not None
    assert found.requests > 400
    unknown = {one.id for one in found.assessable if not one.possible}
    assert unknown <= {"fabric_flap", "kv_transfer_failure", "stale_cache_peer"}  # there is no fabric
    assert found.notes == ()


def test_counts_on_the_pages_are_those_of_the_requests(served):
    bundle = show(served)
    first = [call for call in served.calls if call.first_token <= served.times[-1]]
    seen = _sum(bundle, "vllm:time_to_first_token_seconds_count")
    assert seen == pytest.approx(len(first), abs=4.0)
    made = sum(float(engine.counters["generation_tokens"][-1]) for engine in served.engines)
    assert _sum(bundle, "vllm:generation_tokens_total") == pytest.approx(made, abs=2.0)
    prompt = _sum(bundle, "vllm:prompt_tokens_total")
    assert _sum(bundle, "vllm:prompt_tokens_by_source_total") == pytest.approx(prompt, abs=6.0)


def test_a_real_restart_resets_every_counter():
    replica = Replica(
        "vllm-0:8000", restarts=(Restart(700.0, 60.0, reason="crash", settings=Settings(kv_blocks=9000)),)
    )
    plan = Plan("restart", 4, seconds=1500.0, replicas=(replica,))
    bundle = show(run(plan))
    for series in bundle.series():
        name = series.labels["__name__"]
        if name.startswith("vllm:") and name.endswith(("_total", "_bucket", "_count", "_sum")):
            falls = np.flatnonzero(np.diff(series.values) < 0.0)
            assert falls.size <= 1, series.labels
            for index in falls:
                assert series.times[index] < plan.start + 700.5
                assert series.times[index + 1] > plan.start + 759.5
