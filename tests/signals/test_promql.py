"""PromQL text: valid to an independent parser, quoted, with every spelling before aggregation."""

from __future__ import annotations

import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diag.engines import ENGINES, Definition
from diag.errors import SignalError
from diag.signals.algebra import (
    Aggregate,
    Bit,
    Clamp,
    Expr,
    FirstOf,
    Gauge,
    Keep,
    Matcher,
    Quantile,
    Rate,
    Scale,
    Unless,
    select,
    total,
)
from diag.signals.promql import selector, write

_X, _Y = Gauge(select("x")), Gauge(select("y"))


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Gauge(select("x"), "max"), "max_over_time(x[60s])"),
        (Rate(select("v:x")), "rate(v:x[60s]) or rate(v_x[60s])"),
        (
            total(Rate(select("new", "old", kind="a")), ("b", "c")),
            'sum by (b, c) (rate(new{kind="a"}[60s]) or rate(old{kind="a"}[60s]))',
        ),
        (
            Quantile(0.95, select("h"), ("i",)),
            "histogram_quantile(0.95, sum by (i, le) (rate(h_bucket[60s])))",
        ),
        (Bit(_X, 6), "floor((last_over_time(x[60s])) / 64) % 2"),
        (Clamp(_X, 0.0, float("inf")), "clamp(last_over_time(x[60s]), 0, Inf)"),
        (Keep(_X, 0.0, 9e18), "((last_over_time(x[60s])) >= 0) <= 9e+18"),
        (Scale(_X, 1e-9), "(last_over_time(x[60s])) * 1e-09"),
        (FirstOf((_X, _Y)), "(last_over_time(x[60s])) or (last_over_time(y[60s]))"),
        (Unless(_X, _Y), "(last_over_time(x[60s])) unless (last_over_time(y[60s]))"),
        (Aggregate("count", _X, ()), "count by () (last_over_time(x[60s]))"),
    ],
)
def test_an_operation_is_written_so(expr: Expr, text: str) -> None:
    assert write(expr, 60) == text


def test_a_users_matchers_stand_on_every_selector() -> None:
    expr = FirstOf((Rate(select("v:x", mode="a")), Quantile(0.5, select("h"), ())))
    text = write(expr, 60, [Matcher("cluster", "=~", "eu-.*")])
    assert text.count('cluster=~"eu-.*"') == text.count("[60s]") == 3


@pytest.mark.parametrize(
    "definition",
    [
        pytest.param(definition, id=f"{engine.name}-{name}")
        for engine in ENGINES
        for name, definition in engine.signals.items()
        if isinstance(definition, Definition)
    ],
)
def test_an_independent_parser_accepts_every_definition(definition: Definition) -> None:
    promql_parser.parse(write(definition.expr, 90, [Matcher("job", "!=", 'a"b\\')]))


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=20))
def test_any_value_survives_quoting(value: str) -> None:
    parsed = promql_parser.parse(selector("x", [Matcher("label", "=", value)]))
    assert isinstance(parsed, promql_parser.VectorSelector)
    (matcher,) = parsed.matchers.matchers
    assert matcher.value == value


def test_a_name_that_is_no_classic_name_is_quoted() -> None:
    assert selector("my.metric", [Matcher("a", "!~", "b")]) == '{__name__="my.metric",a!~"b"}'


@pytest.mark.parametrize(
    ("window", "text"), [(60, "60s"), (61.5, "61500ms"), (0.25, "250ms"), (3600.0, "3600s")]
)
def test_a_window_is_written_in_whole_units(window: float, text: str) -> None:
    assert write(_X, window) == f"last_over_time(x[{text}])"


@pytest.mark.parametrize("window", [0, -5, float("nan"), float("inf"), 0.0001])
def test_a_window_that_is_none_is_refused(window: float) -> None:
    with pytest.raises(SignalError, match="is no window"):
        write(_X, window)


def test_a_label_that_is_none_is_refused() -> None:
    with pytest.raises(SignalError, match=r"'a-b' is no label name"):
        write(_X, 60, [Matcher("a-b", "=", "c")])


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan")])
def test_a_quantile_that_does_not_exist_is_refused(q: float) -> None:
    with pytest.raises(SignalError, match="does not exist"):
        write(Quantile(q, select("h"), ()), 60)
