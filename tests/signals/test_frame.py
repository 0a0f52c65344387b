"""The evaluator's own rules: windows, absence, joins of pieces, properties of rate and quantile."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diag.errors import SignalError, UsageError
from diag.signals.algebra import (
    Aggregate,
    Binary,
    Expr,
    FirstOf,
    Gauge,
    Increase,
    Keep,
    Matcher,
    Quantile,
    Rate,
    mean_of,
    ratio,
    select,
    total,
)
from diag.signals.frame import Grid, RawSeries, SampleIndex, evaluate, evaluate_many

_NAN = float("nan")


def _series(name: str, times: list[float], values: list[float], **labels: str) -> RawSeries:
    return RawSeries(
        {"__name__": name, **labels}, np.array(times, dtype=float), np.array(values, dtype=float)
    )


def _at(expr: Expr, moment: float, window: float, *series: RawSeries) -> float:
    """The only value of ``expr`` at one moment; NaN when there is none."""
    found = evaluate(expr, SampleIndex(series), Grid(moment, moment, 1.0, window))
    assert len(found) <= 1
    return float(found[0].values[0]) if found else _NAN


def test_a_window_holds_both_its_ends() -> None:
    gauge = _series("g", [0, 10, 20, 30], [5, 1, 2, 9])
    assert _at(Gauge(select("g"), "max"), 20, 20, gauge) == 5
    assert _at(Gauge(select("g"), "max"), 20, 19.999, gauge) == 2
    assert _at(Gauge(select("g"), "avg"), 20, 10, gauge) == 1.5
    assert _at(Gauge(select("g"), "min"), 30, 20, gauge) == 1


def test_a_dead_target_is_gone_after_one_window() -> None:
    gauge = _series("g", [0, 10], [5, 6])
    assert _at(Gauge(select("g")), 20, 10, gauge) == 6
    assert math.isnan(_at(Gauge(select("g")), 21, 10, gauge))


def test_one_sample_makes_no_rate() -> None:
    assert math.isnan(_at(Rate(select("c")), 10, 5, _series("c", [0, 10], [1, 2])))


def test_a_rate_reaches_to_the_ends_of_its_window() -> None:
    # Samples at 10 … 50 rise by 1 a second; half a step is missing at each end of [5, 55].
    counter = _series("c", [10, 20, 30, 40, 50], [110, 120, 130, 140, 150])
    assert _at(Increase(select("c")), 55, 50, counter) == pytest.approx(50.0)
    assert _at(Rate(select("c")), 55, 50, counter) == pytest.approx(1.0)


def test_a_rate_does_not_reach_back_beyond_zero() -> None:
    # Started from 0 two seconds before its first sample: the window's other 28 s held nothing.
    counter = _series("c", [30, 40, 50], [2, 12, 22])
    assert _at(Increase(select("c")), 50, 25, counter) == pytest.approx(22.0)


def test_a_reset_counts_what_came_after_it() -> None:
    counter = _series("c", [0, 10, 20, 30], [100, 110, 5, 15])
    assert _at(Increase(select("c")), 30, 30, counter) == pytest.approx(25.0)


def test_nan_counts_as_no_sample() -> None:
    with_nan = _series("c", [0, 10, 20, 30], [0, _NAN, 20, _NAN])
    without = _series("c", [0, 20], [0, 20])
    assert _at(Rate(select("c")), 30, 30, with_nan) == _at(Rate(select("c")), 30, 30, without)
    assert _at(Gauge(select("c")), 30, 30, with_nan) == 20


def test_nothing_divided_by_nothing_is_unknown() -> None:
    series = [_series(f"h_{part}", [0, 10, 20], [7, 7, 7]) for part in ("sum", "count")]
    assert math.isnan(_at(mean_of(select("h"), ()), 20, 20, *series))


def test_a_side_that_is_missing_gives_nothing() -> None:
    assert (
        evaluate(
            Binary("+", Gauge(select("a")), Gauge(select("b"))),
            SampleIndex([_series("a", [0], [1], i="1"), _series("b", [0], [1], i="2")]),
            Grid(0, 0, 1, 10),
        )
        == []
    )


def test_not_a_number_is_a_value_to_first_of_as_it_is_to_a_store() -> None:
    zero, one = _series("zero", [0], [0]), _series("one", [0], [1])
    expr = FirstOf((ratio(Gauge(select("zero")), Gauge(select("zero"))), Gauge(select("one"))))
    assert math.isnan(_at(expr, 0, 10, zero, one))


def test_dropped_values_leave_room_for_the_next() -> None:
    blank, spare = _series("a", [0], [9.2e18]), _series("b", [0], [1])
    assert _at(FirstOf((Keep(Gauge(select("a")), 0, 9e18), Gauge(select("b")))), 0, 10, blank, spare) == 1


def test_an_absent_label_groups_with_an_empty_one() -> None:
    series = [_series("g", [0], [1], pod=""), _series("g", [0], [2], i="x")]
    found = evaluate(total(Gauge(select("g")), ("pod",)), SampleIndex(series), Grid(0, 0, 1, 10))
    assert [(dict(v.labels), v.values.tolist()) for v in found] == [({}, [3.0])]


def test_pieces_of_one_series_are_joined_in_order() -> None:
    pieces = [_series("c", [20, 30], [20, 30]), _series("c", [0, 10, 20], [0, 10, 19])]
    assert _at(Increase(select("c")), 30, 30, *pieces) == pytest.approx(30.0)


def test_results_do_not_depend_on_the_order_of_series() -> None:
    series = [_series("g", [0, 10], [i, i * 2], i=str(i)) for i in range(5)]
    expr, grid = Gauge(select("g")), Grid(0, 10, 5, 5)
    one, other = (evaluate(expr, SampleIndex(s), grid) for s in (series, series[::-1]))
    assert [dict(v.labels) for v in one] == [dict(v.labels) for v in other]
    assert all(np.array_equal(a.values, b.values, equal_nan=True) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("matcher", "found"),
    [
        (Matcher("i", "=", "a"), {"a"}),
        (Matcher("i", "!=", "a"), {"ab", ""}),
        (Matcher("i", "=~", "a"), {"a"}),
        (Matcher("i", "=~", "a.*|"), {"a", "ab", ""}),
        (Matcher("i", "!~", "a|"), {"ab"}),
        (Matcher("missing", "=", ""), {"a", "ab", ""}),
    ],
    ids=str,
)
def test_conditions_are_anchored_and_an_absent_label_is_empty(matcher: Matcher, found: set[str]) -> None:
    index = SampleIndex(
        [_series("g", [0], [1], i="a"), _series("g", [0], [1], i="ab"), _series("g", [0], [1])]
    )
    vectors = evaluate(Gauge(select("g")), index, Grid(0, 0, 1, 10), [matcher])
    assert {v.labels.get("i", "") for v in vectors} == found


def test_a_bad_pattern_is_the_users_mistake_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"'\[', asked of label i, is no regular expression"):
        evaluate(
            Gauge(select("g")),
            SampleIndex([_series("g", [0], [1])]),
            Grid(0, 0, 1, 1),
            [Matcher("i", "=~", "[")],
        )


def test_a_quantile_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SignalError, match="does not exist"):
        evaluate(Quantile(2.0, select("h"), ()), SampleIndex([]), Grid(0, 0, 1, 1))


def _histogram(counts: dict[str, float]) -> list[RawSeries]:
    return [_series("h_bucket", [0, 10], [0, count], le=bound) for bound, count in counts.items()]


@pytest.mark.parametrize(
    ("counts", "q", "expected"),
    [
        ({"1": 2, "2": 4, "+Inf": 4}, 0.5, 1.0),
        ({"1": 2, "2": 4, "+Inf": 4}, 0.75, 1.5),
        ({"1": 2, "2": 4, "+Inf": 4}, 0.25, 0.5),
        ({"1": 2, "2": 4, "+Inf": 8}, 0.9, 2.0),
        ({"-1": 2, "2": 4, "+Inf": 4}, 0.25, -1.0),
        ({"1": 3, "2": 2, "4": 4, "+Inf": 4}, 0.99, 3.92),
        ({"1": 1, "1.0": 1, "2": 4, "+Inf": 4}, 0.5, 1.0),
        ({"1": 2, "2": 4}, 0.5, _NAN),
        ({"+Inf": 4}, 0.5, _NAN),
        ({"1": 0, "+Inf": 0}, 0.5, _NAN),
        ({"1": 2, "2": 4, "+Inf": 4, "strange": 9}, 0.5, 1.0),
    ],
)
def test_quantiles_of_small_histograms(counts: dict[str, float], q: float, expected: float) -> None:
    found = _at(Quantile(q, select("h"), ()), 10, 10, *_histogram(counts))
    assert found == pytest.approx(expected, nan_ok=True)


_GROWTH = st.lists(st.integers(0, 1000), min_size=3, max_size=30)


@given(_GROWTH, st.integers(1, 60), st.integers(0, 10**6))
def test_a_rate_does_not_care_where_a_rising_counter_stands(growth: list[int], step: int, base: int) -> None:
    times = [float(i * step) for i in range(len(growth))]
    far = 10**9
    one, other = (
        _at(Rate(select("c")), times[-1], times[-1], _series("c", times, list(start + np.cumsum(growth))))
        for start in (far, far + base)
    )
    assert one == pytest.approx(other, rel=1e-9, abs=1e-12)


@given(_GROWTH, st.integers(1, 29))
def test_a_reset_never_makes_a_negative_rate(growth: list[int], reset: int) -> None:
    times, counts = [float(i) for i in range(len(growth))], np.cumsum(growth)
    reset = min(reset, len(growth) - 1)
    counts = np.concatenate((counts[:reset], np.cumsum(growth[reset:])))
    assert _at(Increase(select("c")), times[-1], times[-1], _series("c", times, counts.tolist())) >= 0


@given(_GROWTH)
def test_over_a_window_cut_at_samples_the_increase_is_exact(growth: list[int]) -> None:
    times, counts = [float(i) for i in range(len(growth))], np.cumsum(growth).astype(float)
    found = _at(Increase(select("c")), times[-1], times[-1], _series("c", times, counts.tolist()))
    assert found == pytest.approx(counts[-1] - counts[0])


_COUNTS = st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any)


@given(_COUNTS, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_quantile_is_no_lower_and_inside_the_bounds(
    counts: list[int], q: float, other: float
) -> None:
    cumulative = np.cumsum(counts).tolist()
    series = _histogram(dict(zip(("0.5", "1", "8", "+Inf"), cumulative, strict=True)))
    low, high = (_at(Quantile(one, select("h"), ()), 10, 10, *series) for one in sorted((q, other)))
    if not math.isnan(low):
        assert 0 <= low <= high + 1e-9
        assert high <= 8


@given(_COUNTS, st.integers(2, 5), st.floats(0.01, 1))
def test_more_of_the_same_moves_no_quantile(counts: list[int], times: int, q: float) -> None:
    bounds, cumulative = ("0.5", "1", "8", "+Inf"), np.cumsum(counts)
    one, many = (
        _at(Quantile(q, select("h"), ()), 10, 10, *_histogram(dict(zip(bounds, c.tolist(), strict=True))))
        for c in (cumulative, cumulative * times)
    )
    assert one == pytest.approx(many, rel=1e-6)


def _fleet() -> list[RawSeries]:
    times = np.arange(0.0, 8 * 3600, 15.0)
    values = np.cumsum(np.random.default_rng(1).poisson(3, (500, len(times))), axis=1).astype(float)
    bounds = [*(str(2.0**k) for k in range(24)), "+Inf"]
    return [
        RawSeries({"__name__": "h_bucket", "le": bounds[i % 25], "i": str(i // 25)}, times, values[i])
        for i in range(500)
    ]


def test_sixty_expressions_share_five_hundred_series() -> None:
    index, grid = SampleIndex(_fleet()), Grid(0.0, 8 * 3600.0, 15.0, 300.0)
    exprs: list[Expr] = [Quantile(q / 40, select("h"), ("i",)) for q in range(40)]
    exprs += [Aggregate("max", Gauge(select("h_bucket", i=str(i)), "max"), ("le",)) for i in range(20)]
    results = evaluate_many(exprs, index, grid)
    assert [len(vectors) for vectors in results] == [20] * 40 + [25] * 20
