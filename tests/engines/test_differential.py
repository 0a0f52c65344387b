"""Both back ends on the same samples: PromQL in a real Prometheus 2.42, numpy here.

Stated tolerance: 1e-9 relative, and the same answer about which values exist at all. The samples
are a real recording and made-up series for every name, age and spelling in the engine files.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from diag.engines import ENGINES, Definition
from diag.signals.algebra import (
    Aggregate,
    Expr,
    FirstOf,
    Gauge,
    Increase,
    Matcher,
    Quantile,
    Rate,
    Scale,
    Unless,
    select,
)
from diag.signals.frame import Grid, RawSeries, SampleIndex, evaluate_many
from diag.signals.promql import write

pytestmark = pytest.mark.server

RELATIVE = 1e-9
_DEFINED = [
    pytest.param(definition.expr, id=f"{engine.name}-{name}")
    for engine in ENGINES
    for name, definition in engine.signals.items()
    if isinstance(definition, Definition)
]
_TTFT = select("vllm:time_to_first_token_seconds")
_COUNTER = select("vllm:prompt_tokens_total")
_RUNNING = select("vllm:num_requests_running")
_PLAIN = {
    "rate": Rate(_COUNTER),
    "increase": Increase(_COUNTER),
    "max": Gauge(_RUNNING, "max"),
    "min": Gauge(_RUNNING, "min"),
    "avg": Gauge(_RUNNING, "avg"),
    "count": Aggregate("count", Gauge(_RUNNING), ("job",)),
    "avg by": Aggregate("avg", Gauge(_RUNNING), ("instance",)),
    "min by": Aggregate("min", Gauge(_RUNNING), ("instance",)),
    "lowest quantile": Quantile(0.0, _TTFT, ("instance",)),
    "highest quantile": Quantile(1.0, _TTFT, ("instance",)),
    "quantile over all": Quantile(0.5, _TTFT, ()),
    "first of": FirstOf((Scale(Rate(_COUNTER), 2.0), Scale(Gauge(_COUNTER), 1.0))),
    "unless": Unless(
        Aggregate("sum", Gauge(_RUNNING), ("instance",)), Aggregate("max", Rate(_COUNTER), ("instance",))
    ),
}


@pytest.fixture(scope="session")
def index(samples: list[RawSeries]) -> SampleIndex:
    return SampleIndex(samples)


def _compare(store, index: SampleIndex, grid: Grid, expr: Expr, matchers: tuple[Matcher, ...] = ()) -> int:
    theirs = store.ask(write(expr, grid.window, matchers), grid)
    ours = {
        tuple(sorted(v.labels.items())): v.values for v in evaluate_many([expr], index, grid, matchers)[0]
    }
    compared = 0
    for key in theirs.keys() | ours.keys():
        nothing = np.full(len(grid.times), np.nan)
        mine, other = ours.get(key, nothing), theirs.get(key, nothing)
        np.testing.assert_allclose(mine, other, rtol=RELATIVE, atol=0, err_msg=f"{dict(key)}")
        compared += int(np.isfinite(mine).sum())
    return compared


@pytest.mark.parametrize("expr", _DEFINED)
def test_a_definition_gives_the_same_in_a_store_and_on_samples(prometheus, index, grids, expr) -> None:
    compared = sum(_compare(prometheus, index, grid, expr) for grid in grids())
    assert compared > 10, "the samples must exercise the expression"


@pytest.mark.parametrize("expr", _PLAIN.values(), ids=_PLAIN.keys())
def test_each_operation_gives_the_same_in_a_store_and_on_samples(
    prometheus, index, grids: Callable[[], tuple[Grid, ...]], expr: Expr
) -> None:
    assert sum(_compare(prometheus, index, grid, expr) for grid in grids()) > 10


@pytest.mark.parametrize(
    "matcher",
    [
        Matcher("instance", "=", "all"),
        Matcher("instance", "!=", "all"),
        Matcher("instance", "=~", "vllm.*|age0-.*"),
        Matcher("instance", "!~", "age"),
        Matcher("engine", "=", ""),
    ],
    ids=str,
)
def test_a_users_matcher_narrows_both_alike(prometheus, index, grids, matcher: Matcher) -> None:
    expr = Aggregate("sum", Gauge(_RUNNING), ("instance", "engine"))
    assert _compare(prometheus, index, grids()[0], expr, (matcher,)) > 10


def test_the_samples_are_hostile_enough(samples: list[RawSeries]) -> None:
    counters = [s.values for s in samples if s.labels["__name__"].endswith("_total")]
    assert any(np.isnan(v).any() for v in counters)
    assert any((np.diff(v) < 0).any() for v in counters)
    assert any(np.diff(s.times).max() > 20 * np.median(np.diff(s.times)) for s in samples)


@pytest.mark.parametrize("expr", _DEFINED)
def test_victoria_metrics_understands_every_definition(victoria, grids, expr: Expr) -> None:
    assert victoria.ask(write(expr, 30.0), grids()[0])
