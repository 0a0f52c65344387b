"""The expression algebra in which engines define canonical signals.

An expression is written once and evaluated twice: ``promql`` prints it for a store,
``frame`` evaluates it on raw samples. Both give, on a grid of times, one value per label set.
The algebra holds only what both can do exactly alike.

All range functions look back over the grid's *window* (seconds, inclusive at both ends, as in
Prometheus 2). Gauges are read over that window too, never by a store's five-minute look-back: a
dead target must not live on as a ghost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Aggregate",
    "Binary",
    "Bit",
    "Clamp",
    "Expr",
    "FirstOf",
    "Gauge",
    "Increase",
    "Keep",
    "Matcher",
    "Quantile",
    "Rate",
    "Scale",
    "Select",
    "Unless",
    "difference",
    "mean_of",
    "ratio",
    "select",
    "selects",
    "spellings",
    "total",
]

MatchOp = Literal["=", "!=", "=~", "!~"]
Over = Literal["last", "max", "min", "avg"]
AggregateOp = Literal["sum", "max", "min", "avg", "count"]
BinaryOp = Literal["+", "-", "/", "*"]


@dataclass(frozen=True, slots=True)
class Matcher:
    """One label condition. Regular expressions are anchored at both ends, as in PromQL."""

    label: str
    op: MatchOp
    value: str


@dataclass(frozen=True, slots=True)
class Select:
    """Series by metric name. ``names`` are the spellings of one thing, newest first: the first
    name that a label set carries wins, so that a mixed fleet is counted once."""

    names: tuple[str, ...]
    where: tuple[Matcher, ...] = ()


def select(*names: str, **where: str) -> Select:
    """``select("vllm:x", "vllm:old_x", reason="capacity")``; a value that starts with ``~``,
    ``!`` or ``!~`` is a regular expression, an inequality, or a negated regular expression."""
    return Select(names, tuple(_matcher(label, value) for label, value in where.items()))


def _matcher(label: str, value: str) -> Matcher:
    if value.startswith("!~"):
        return Matcher(label, "!~", value[2:])
    if value.startswith("~"):
        return Matcher(label, "=~", value[1:])
    if value.startswith("!"):
        return Matcher(label, "!=", value[1:])
    return Matcher(label, "=", value)


def spellings(name: str) -> tuple[str, ...]:
    """How ``name`` can stand on the wire: OpenMetrics negotiation and Ray write ``_`` for ``:``."""
    return (name, name.replace(":", "_")) if ":" in name else (name,)


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge, read over the window: its last, largest, smallest or mean sample."""

    select: Select
    over: Over = "last"


@dataclass(frozen=True, slots=True)
class Rate:
    """Increase of a counter per second, with resets and extrapolation as Prometheus does it."""

    select: Select


@dataclass(frozen=True, slots=True)
class Increase:
    """Increase of a counter over the window."""

    select: Select


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One value for each combination of the labels ``by``; a label that is absent counts as ''."""

    op: AggregateOp
    expr: Expr
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quantile:
    """Quantile of a classic histogram over the window; bounds come from the data's ``le``.

    ``select`` names the family without ``_bucket``."""

    q: float
    select: Select
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic between values of equal label sets; a set on one side only gives nothing."""

    op: BinaryOp
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit factor."""

    expr: Expr
    factor: float


@dataclass(frozen=True, slots=True)
class Clamp:
    """Values cut to ``low`` … ``high``."""

    expr: Expr
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Bit:
    """0 or 1: whether bit number ``bit`` (0 = lowest) is set in an integer-valued expression."""

    expr: Expr
    bit: int


@dataclass(frozen=True, slots=True)
class FirstOf:
    """For each label set the value of the first expression that has one (PromQL ``or``)."""

    exprs: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """Only values inside ``low`` … ``high``; the others are dropped, not cut. For sentinels that
    stand for "not supported" (DCGM's 9.2e18, vLLM V0's hit rate of -1)."""

    expr: Expr
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Unless:
    """The values of ``expr`` whose label set has no value in ``other``."""

    expr: Expr
    other: Expr


Expr = Gauge | Rate | Increase | Aggregate | Quantile | Binary | Scale | Clamp | Bit | FirstOf | Keep | Unless


def total(expr: Expr, by: tuple[str, ...]) -> Aggregate:
    """Sum by labels."""
    return Aggregate("sum", expr, by)


def ratio(numerator: Expr, denominator: Expr) -> Binary:
    """Share; 0/0 is NaN, which means *unknown*, never 0."""
    return Binary("/", numerator, denominator)


def difference(left: Expr, right: Expr) -> Binary:
    """What is on the left and not on the right."""
    return Binary("-", left, right)


def mean_of(family: Select, by: tuple[str, ...]) -> Binary:
    """Mean of a histogram's observations over the window (exact, unlike a quantile)."""
    sums = Select(tuple(f"{n}_sum" for n in family.names), family.where)
    counts = Select(tuple(f"{n}_count" for n in family.names), family.where)
    return ratio(total(Rate(sums), by), total(Rate(counts), by))


def selects(expr: Expr) -> Iterator[Select]:
    """Every selection an expression reads, with ``_bucket`` already put on histograms' names."""
    match expr:
        case Gauge() | Rate() | Increase():
            yield expr.select
        case Quantile():
            yield Select(tuple(f"{n}_bucket" for n in expr.select.names), expr.select.where)
        case Aggregate() | Scale() | Clamp() | Bit() | Keep():
            yield from selects(expr.expr)
        case Binary():
            yield from selects(expr.left)
            yield from selects(expr.right)
        case Unless():
            yield from selects(expr.expr)
            yield from selects(expr.other)
        case FirstOf():
            for inner in expr.exprs:
                yield from selects(inner)
