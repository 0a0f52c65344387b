"""Evaluate the expression algebra on raw samples (numpy), to the letter as Prometheus 2 would.

A differential test holds this module against a real Prometheus. Two things to know: times are
taken in whole milliseconds, as a store keeps them, and a NaN sample counts as no sample, because
bundles and scraped pages write staleness that way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diag.errors import SignalError, UsageError
from diag.signals.algebra import (
    Aggregate,
    Binary,
    Bit,
    Clamp,
    Expr,
    FirstOf,
    Gauge,
    Increase,
    Keep,
    Matcher,
    Quantile,
    Rate,
    Scale,
    Select,
    Unless,
    spellings,
)
from diag.signals.quantiles import bucket_quantile
from diag.signals.windows import Column, Spans, increase, over_time, spans

__all__ = ["Grid", "RawSeries", "SampleIndex", "Vector", "evaluate", "evaluate_many"]

Floats = NDArray[np.float64]
_Key = tuple[tuple[str, str], ...]
_Rows = dict[_Key, Column]


@dataclass(frozen=True, slots=True)
class Grid:
    """Evaluation times ``start, start + step, … ≤ end`` and the look-back ``window``, all seconds."""

    start: float
    end: float
    step: float
    window: float

    @property
    def times(self) -> Floats:
        """Unix seconds, float64, shape (n,)."""
        count = int(np.floor((self.end - self.start) / self.step + 1e-9)) + 1
        return self.start + self.step * np.arange(max(count, 0), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class RawSeries:
    """One series as scraped. ``labels`` hold ``__name__``; ``times`` unix seconds, ascending, unique;
    ``values`` float64, NaN allowed (stale or not a number)."""

    labels: Mapping[str, str]
    times: Floats
    values: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """One label set of a result, without ``__name__``; ``values`` float64 on the grid's times, NaN
    where there is no value (or where it is not a number: 0/0)."""

    labels: Mapping[str, str]
    values: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Track:
    """One series, ready to be read: no name, no empty labels, no NaN; times in milliseconds."""

    key: _Key
    times: NDArray[np.int64]
    values: Floats


class SampleIndex:
    """Raw series by metric name. Pieces of one series (a store's export may split it) are joined;
    of two samples at one millisecond the later piece's wins."""

    def __init__(self, raw_series: Iterable[RawSeries]) -> None:
        self._raw: dict[str, list[RawSeries]] = {}
        self._tracks: dict[str, tuple[_Track, ...]] = {}
        for series in raw_series:
            self._raw.setdefault(series.labels.get("__name__", ""), []).append(series)

    @property
    def names(self) -> frozenset[str]:
        """Every metric name that has a series."""
        return frozenset(self._raw)

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def tracks(self, name: str) -> tuple[_Track, ...]:
        """The series called ``name``, by label set in ascending order."""
        if name not in self._tracks:
            self._tracks[name] = tuple(_prepared(self._raw.get(name, ())))
        return self._tracks[name]


def _prepared(pieces: Iterable[RawSeries]) -> Iterator[_Track]:
    by_key: dict[_Key, list[RawSeries]] = {}
    for piece in pieces:
        by_key.setdefault(_key(piece.labels), []).append(piece)
    for key in sorted(by_key):
        times = np.concatenate([np.asarray(p.times, dtype=np.float64) for p in by_key[key]])
        values = np.concatenate([np.asarray(p.values, dtype=np.float64) for p in by_key[key]])
        known = ~np.isnan(values)
        yield _Track(key, *_ascending(np.rint(times[known] * 1000).astype(np.int64), values[known]))


def _key(labels: Mapping[str, str]) -> _Key:
    return tuple(sorted((name, value) for name, value in labels.items() if value and name != "__name__"))


def _ascending(times: NDArray[np.int64], values: Floats) -> tuple[NDArray[np.int64], Floats]:
    if len(times) < 2 or (times[1:] > times[:-1]).all():
        return times, values
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    last_of_each = np.append(times[1:] > times[:-1], True)
    return times[last_of_each], values[last_of_each]


def evaluate(expr: Expr, index: SampleIndex, grid: Grid, matchers: Sequence[Matcher] = ()) -> list[Vector]:
    """Evaluate ``expr`` on ``grid``; one ``Vector`` per label set that has any value, in ascending
    order of labels. ``matchers`` narrow every selection. Raises ``UsageError`` for a matcher whose
    regular expression doesn't compile, ``SignalError`` for a quantile outside 0 … 1."""
    return evaluate_many([expr], index, grid, matchers)[0]


def evaluate_many(
    exprs: Sequence[Expr], index: SampleIndex, grid: Grid, matchers: Sequence[Matcher] = ()
) -> list[list[Vector]]:
    """``evaluate`` for several expressions; what they have in common is computed once."""
    evaluation = _Evaluation(index, grid, tuple(matchers))
    return [_vectors(evaluation.rows(expr)) for expr in exprs]


def _vectors(rows: _Rows) -> list[Vector]:
    return [
        Vector(dict(key), np.where(column.present, column.values, np.nan))
        for key, column in sorted(rows.items(), key=lambda item: item[0])
        if column.present.any()
    ]


class _Evaluation:
    """One grid, one index, and what was already computed on them."""

    def __init__(self, index: SampleIndex, grid: Grid, matchers: tuple[Matcher, ...]) -> None:
        self._index = index
        self._times = np.rint(grid.times * 1000).astype(np.int64)
        self._window = round(grid.window * 1000)
        self._matchers = matchers
        self._rows: dict[Expr, _Rows] = {}
        self._columns: dict[tuple[str, int], Column] = {}
        self._spans: dict[int, Spans] = {}

    def rows(self, expr: Expr) -> _Rows:
        if expr not in self._rows:
            self._rows[expr] = self._compute(expr)
        return self._rows[expr]

    def _compute(self, expr: Expr) -> _Rows:
        match expr:
            case Gauge():
                return self._select(expr.select, expr.over)
            case Rate():
                return self._select(expr.select, "rate")
            case Increase():
                return self._select(expr.select, "increase")
            case Aggregate():
                return _aggregate(expr.op, self.rows(expr.expr), expr.by)
            case Quantile():
                return self._quantile(expr)
            case Binary():
                return _binary(expr.op, self.rows(expr.left), self.rows(expr.right))
            case FirstOf():
                return _first_of([self.rows(part) for part in expr.exprs])
            case Keep():
                return _keep(self.rows(expr.expr), expr.low, expr.high)
            case Unless():
                return _unless(self.rows(expr.expr), self.rows(expr.other))
            case Scale() | Clamp() | Bit():
                return self._pointwise(expr)

    def _pointwise(self, expr: Scale | Clamp | Bit) -> _Rows:
        change: Callable[[Floats], Floats]
        match expr:
            case Scale(factor=factor):
                change = lambda values: values * factor  # noqa: E731
            case Clamp(low=low, high=high):
                change = lambda values: np.clip(values, low, high)  # noqa: E731
            case Bit(bit=bit):
                change = lambda values: np.fmod(np.floor(values / 2**bit), 2.0)  # noqa: E731
        with np.errstate(invalid="ignore"):
            return {k: Column(change(c.values), c.present) for k, c in self.rows(expr.expr).items()}

    def _select(self, select: Select, function: str) -> _Rows:
        accepts = _filter(select.where + self._matchers)
        chain: list[_Rows] = []
        for name in (spelling for one in select.names for spelling in spellings(one)):
            if name in self._index:
                tracks = [t for t in self._index.tracks(name) if accepts(t.key)]
                chain.append({t.key: self._column(t, function) for t in tracks})
        return _first_of(chain)

    def _column(self, track: _Track, function: str) -> Column:
        cached = self._columns.get((function, id(track)))
        if cached is not None:
            return cached
        span = self._spans.get(id(track))
        if span is None:
            span = self._spans[id(track)] = spans(track.times, self._times, self._window)
        if function in ("rate", "increase"):
            column = increase(track.times, track.values, span, per_second=function == "rate")
        else:
            column = over_time(function, track.values, span)
        self._columns[function, id(track)] = column
        return column

    def _quantile(self, expr: Quantile) -> _Rows:
        if not 0.0 <= expr.q <= 1.0:
            raise SignalError(f"a quantile of {expr.q} does not exist", hint="use 0 to 1")
        names = tuple(f"{name}_bucket" for name in expr.select.names)
        rates = self.rows(Rate(Select(names, expr.select.where)))
        groups: dict[_Key, dict[float, list[Column]]] = {}
        for key, column in _aggregate("sum", rates, (*expr.by, "le")).items():
            bound = _bound(dict(key).get("le", ""))
            if bound is not None:
                rest = tuple(pair for pair in key if pair[0] != "le")
                groups.setdefault(rest, {}).setdefault(bound, []).append(column)
        return {key: _quantile_of(expr.q, buckets) for key, buckets in groups.items()}


def _filter(matchers: tuple[Matcher, ...]) -> Callable[[_Key], bool]:
    tests = [(m.label, _test(m)) for m in matchers]
    if not tests:
        return lambda _key: True

    def accepts(key: _Key) -> bool:
        labels = dict(key)
        return all(test(labels.get(label, "")) for label, test in tests)

    return accepts


def _test(matcher: Matcher) -> Callable[[str], bool]:
    match matcher.op:
        case "=":
            return lambda value: value == matcher.value
        case "!=":
            return lambda value: value != matcher.value
    try:
        pattern = re.compile(matcher.value)
    except re.error as error:
        raise UsageError(
            f"{matcher.value!r}, asked of label {matcher.label}, is no regular expression ({error})",
            hint="correct the pattern",
        ) from None
    if matcher.op == "=~":
        return lambda value: pattern.fullmatch(value) is not None
    return lambda value: pattern.fullmatch(value) is None


def _bound(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _quantile_of(q: float, buckets: dict[float, list[Column]]) -> Column:
    bounds = np.array(sorted(buckets), dtype=np.float64)
    # "1" and "1.0" are one bound (clients and stores differ), and Prometheus adds them up.
    columns = [_sum(buckets[bound]) for bound in bounds]
    counts = np.vstack([column.values for column in columns])
    present = np.vstack([column.present for column in columns])
    # Prometheus answers NaN, rather than nothing, for a histogram it cannot use.
    return Column(bucket_quantile(q, bounds, counts, present), _some(present))


def _aggregate(op: str, rows: _Rows, by: tuple[str, ...]) -> _Rows:
    wanted = frozenset(by)
    groups: dict[_Key, list[Column]] = {}
    for key in sorted(rows):
        groups.setdefault(tuple(pair for pair in key if pair[0] in wanted), []).append(rows[key])
    reduce = {"sum": _sum, "max": _max, "min": _min, "avg": _avg, "count": _count}[op]
    return {key: reduce(columns) for key, columns in groups.items()}


def _stacked(columns: Sequence[Column], absent: float) -> tuple[Floats, NDArray[np.bool_]]:
    present = np.vstack([column.present for column in columns])
    values = np.where(present, np.vstack([column.values for column in columns]), absent)
    return values, present


def _some(present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.asarray(present.any(axis=0))


def _sum(columns: Sequence[Column]) -> Column:
    if len(columns) == 1:
        return columns[0]
    values, present = _stacked(columns, 0.0)
    return Column(values.sum(axis=0), _some(present))


def _max(columns: Sequence[Column]) -> Column:
    values, present = _stacked(columns, np.nan)
    return Column(np.fmax.reduce(values, axis=0), _some(present))


def _min(columns: Sequence[Column]) -> Column:
    values, present = _stacked(columns, np.nan)
    return Column(np.fmin.reduce(values, axis=0), _some(present))


def _count(columns: Sequence[Column]) -> Column:
    _, present = _stacked(columns, 0.0)
    return Column(present.sum(axis=0).astype(np.float64), _some(present))


def _avg(columns: Sequence[Column]) -> Column:
    values, present = _stacked(columns, 0.0)
    with np.errstate(invalid="ignore"):
        return Column(values.sum(axis=0) / present.sum(axis=0), _some(present))


def _binary(op: str, left: _Rows, right: _Rows) -> _Rows:
    operation = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[op]
    result: _Rows = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for key in left.keys() & right.keys():
            one, other = left[key], right[key]
            result[key] = Column(operation(one.values, other.values), one.present & other.present)
    return result


def _first_of(chain: Sequence[_Rows]) -> _Rows:
    result: _Rows = {}
    for rows in chain:
        for key, column in rows.items():
            earlier = result.get(key)
            result[key] = column if earlier is None else _filled(earlier, column)
    return result


def _filled(first: Column, second: Column) -> Column:
    values = np.where(first.present, first.values, second.values)
    return Column(values, first.present | second.present)


def _keep(rows: _Rows, low: float, high: float) -> _Rows:
    return {k: Column(c.values, c.present & (c.values >= low) & (c.values <= high)) for k, c in rows.items()}


def _unless(rows: _Rows, other: _Rows) -> _Rows:
    return {
        key: Column(column.values, column.present & ~other[key].present) if key in other else column
        for key, column in rows.items()
    }
