"""Every recording from diag/engines in a real Prometheus, beside the numbers of its signal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from diag.assets.rules.recordings import kept_labels
from tests.engines.store import Answer, Store, holding
from tests.rules.recording_answers import GRID, Generated, generated, same, samples, wanted
from tests.rules.recording_mutants import noticed

pytestmark = pytest.mark.server

_RECORDINGS = [pytest.param(one, id=one.title) for one in generated()]


@dataclass(frozen=True)
class Held:
    """A server and what each recording must give there, by its title."""

    store: Store
    answers: dict[str, Answer]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    series = samples()
    with holding(series, tmp_path_factory.mktemp("recordings")) as store:
        yield Held(store, wanted(series))


@pytest.mark.parametrize("one", _RECORDINGS)
def test_a_recording_is_its_signal(held: Held, one: Generated) -> None:
    answer, must = held.store.ask(one.rule.expr, GRID), held.answers[one.title]
    assert answer.keys() >= must.keys(), f"not answered: {sorted(must.keys() - answer.keys())[:3]}"
    assert same(answer, must)
    assert any(np.isfinite(values).any() for values in answer.values()), "the samples must exercise it"


@pytest.mark.parametrize("one", _RECORDINGS)
def test_a_recording_bears_the_labels_that_are_promised(held: Held, one: Generated) -> None:
    assert one.rule.labels == {"producer": one.engine.name}
    borne = {label for key in held.answers[one.title] for label, _ in key}
    if one.signal:
        assert borne <= {*kept_labels(one.engine, one.signal)}
        assert {"cluster", "job", "instance"} <= borne
    else:
        assert borne == {"cluster", "engine", "instance"}


@pytest.mark.parametrize(
    ("title", "whole", "broken"),
    [
        ('llm:ttft_seconds_p95{producer="vllm"}', "0.95", "0.9"),
        ('llm:waiting_requests{producer="vllm"}', "sum by", "max by"),
        ('llm:running_requests{producer="sglang"}', 'priority=""', 'priority!=""'),
        ('gpu:power_watts{producer="dcgm"}', "<= 100000", "<= 200000"),
        ('gpu:power_watts{producer="dcgm"}', '"UUID",', '"uuid",'),
        ('host:load1{producer="node"}', "cluster, ", ""),
        ('llm:max_num_seqs{producer="llmdiag"}', "max by", "sum by"),
        ('llm:kv_cache_usage_ratio{producer="vllm"}', "5m", "4m"),
        ('llm:kv_cache_usage_ratio{producer="vllm"}', "vllm_gpu_cache_usage_perc", "up"),
        ('llm:queue_seconds_mean{producer="vllm"}', "rate(", "rate(("),
    ],
)
def test_a_broken_recording_is_noticed(held: Held, title: str, whole: str, broken: str) -> None:
    (one,) = (one for one in generated() if one.title == title)
    assert whole in one.rule.expr
    assert not noticed(held.store, one.rule.expr, held.answers[title])
    assert noticed(held.store, one.rule.expr.replace(whole, broken), held.answers[title])
