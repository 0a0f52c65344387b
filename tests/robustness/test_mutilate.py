"""Each mutilation does what it says, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from diag.simulate import Bundle, overlaid

Mutilations = Mapping[str, Callable[[Bundle], Bundle]]
NAME = "load_burst"
ALL = [
    "no_gpu", "no_requests", "no_node", "half_lost", "counter_reset", "old_names", "underscores",
    "duplicate_target", "steps_of_15s",
]  # fmt: skip


def names(bundle: Bundle) -> set[str]:
    return {item.labels["__name__"] for item in bundle.series()}


@pytest.fixture
def whole(recording: Callable[[str], Bundle]) -> Bundle:
    return recording(NAME)


def test_the_list_is_complete(mutilations: Mutilations) -> None:
    assert list(mutilations) == ALL


@pytest.mark.parametrize("mutilation", ALL)
def test_the_right_answer_stays(mutilation: str, mutilations: Mutilations, whole: Bundle) -> None:
    cut = mutilations[mutilation](whole)
    assert cut.label == whole.label
    assert cut.window == whole.window
    assert any(item.values.size for item in cut.series())


def test_no_gpu_leaves_the_rest(mutilations: Mutilations) -> None:
    before = overlaid("healthy_thermal")
    after = mutilations["no_gpu"](before)
    assert set(before.metrics) - set(after.metrics) == {"gpu_simulated"}
    assert not any(name.startswith(("DCGM", "nvidia")) for name in names(after))


def test_no_requests_takes_spans_too(mutilations: Mutilations, recording: Callable[[str], Bundle]) -> None:
    after = mutilations["no_requests"](recording("context_growth_reference"))
    assert not after.requests
    assert [path for path in after.files if not path.startswith("logs/")] == []


def test_no_node_leaves_the_engine(mutilations: Mutilations, whole: Bundle) -> None:
    after = mutilations["no_node"](whole)
    assert {item.labels["job"] for item in after.series()} == {"vllm"}


def test_lost_scrapes_are_lost_for_the_whole_target(mutilations: Mutilations, whole: Bundle) -> None:
    after = mutilations["half_lost"](whole)
    engine = [item for item in after.series() if item.labels["job"] == "vllm"]
    full = next(whole.series("vllm:num_requests_running")).times.size
    assert 0.35 < engine[0].times.size / full < 0.65
    longest = max(engine, key=lambda item: item.times.size).times
    assert all(np.isin(item.times, longest).all() for item in engine)


def test_a_reset_keeps_the_increments_and_the_gauges(mutilations: Mutilations, whole: Bundle) -> None:
    after = mutilations["counter_reset"](whole)
    (before,), (reset,) = whole.series("vllm:prompt_tokens_total"), after.series("vllm:prompt_tokens_total")
    falls = np.flatnonzero(np.diff(reset.values) < 0)
    assert falls.size == 1
    assert np.delete(np.diff(reset.values), falls).sum() == np.delete(np.diff(before.values), falls).sum()
    for name in ("vllm:num_requests_running", "process_start_time_seconds"):
        (old,), (new,) = whole.series(name), after.series(name)
        assert np.array_equal(old.values, new.values)


def test_old_names_are_those_of_the_old_release(mutilations: Mutilations, whole: Bundle) -> None:
    aged = names(mutilations["old_names"](whole))
    assert {"vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds_bucket"} <= aged
    assert not {"vllm:kv_cache_usage_perc", "vllm:inter_token_latency_seconds_bucket"} & aged
    assert not any("by_source" in name or "by_reason" in name for name in aged)
    assert "http_requests_total" in aged


def test_underscores_change_names_only(mutilations: Mutilations, whole: Bundle) -> None:
    spelled = names(mutilations["underscores"](whole))
    assert spelled == {name.replace("vllm:", "vllm_") for name in names(whole)}


def test_a_duplicate_target_doubles_the_serving_series(mutilations: Mutilations, whole: Bundle) -> None:
    after = mutilations["duplicate_target"](whole)
    first, second = after.series("vllm:num_requests_running")
    assert first.labels["instance"] != second.labels["instance"]
    assert np.array_equal(first.values, second.values)
    assert len(list(after.series("node_load1"))) == 1


def test_15_second_steps_are_15_seconds(mutilations: Mutilations, whole: Bundle) -> None:
    after = mutilations["steps_of_15s"](whole)
    (running,) = after.series("vllm:num_requests_running")
    assert np.abs(np.diff(running.times) - 15.0).max() <= 2.0
    assert after.meta["step_seconds"] == 15
