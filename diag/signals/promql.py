"""Print the expression algebra as PromQL, for Prometheus 2.42 and later and for VictoriaMetrics.

Every spelling of a name stands in an ``or`` chain per series, before any aggregation: aggregating
first would lose half of a fleet that is being upgraded. Gauges are read over the window, so that a
target that died is gone after one window instead of a store's five minutes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from diag.errors import SignalError
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

__all__ = ["selector", "write"]

_CLASSIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def write(expr: Expr, window_seconds: float, matchers: Sequence[Matcher] = ()) -> str:
    """Return ``expr`` as one PromQL expression that looks back over ``window_seconds`` (> 0, in
    milliseconds at the finest).

    ``matchers`` are put on every selector. An expression that ends in an unaggregated
    ``Gauge(…, "last")`` keeps the metric's name in the answer; all others drop it. Raises
    ``SignalError`` for a window, label or quantile that PromQL cannot hold.
    """
    return _text(expr, _duration(window_seconds), tuple(matchers))


def selector(name: str, matchers: Sequence[Matcher] = ()) -> str:
    """Return an instant selector for the metric ``name``; quoted where it isn't a classic name."""
    conditions = [f"{_label(m.label)}{m.op}{_quote(m.value)}" for m in matchers]
    if _CLASSIC_NAME.fullmatch(name):
        return name + ("{" + ",".join(conditions) + "}" if conditions else "")
    return "{" + ",".join([f"__name__={_quote(name)}", *conditions]) + "}"


def _text(expr: Expr, window: str, matchers: tuple[Matcher, ...]) -> str:
    def inner(part: Expr) -> str:
        return _text(part, window, matchers)

    match expr:
        case Gauge():
            return _over(f"{expr.over}_over_time", expr.select, window, matchers)
        case Rate():
            return _over("rate", expr.select, window, matchers)
        case Increase():
            return _over("increase", expr.select, window, matchers)
        case Aggregate():
            return f"{expr.op} by ({_labels(expr.by)}) ({inner(expr.expr)})"
        case Quantile():
            return _quantile(expr, window, matchers)
        case Binary():
            return f"({inner(expr.left)}) {expr.op} ({inner(expr.right)})"
        case Scale():
            return f"({inner(expr.expr)}) * {_number(expr.factor)}"
        case Clamp():
            return f"clamp({inner(expr.expr)}, {_number(expr.low)}, {_number(expr.high)})"
        case Bit():
            return f"floor(({inner(expr.expr)}) / {2**expr.bit}) % 2"
        case Keep():
            return f"(({inner(expr.expr)}) >= {_number(expr.low)}) <= {_number(expr.high)}"
        case FirstOf():
            return " or ".join(f"({inner(part)})" for part in expr.exprs)
        case Unless():
            return f"({inner(expr.expr)}) unless ({inner(expr.other)})"


def _over(function: str, select: Select, window: str, matchers: tuple[Matcher, ...]) -> str:
    names = [spelling for name in select.names for spelling in spellings(name)]
    where = select.where + matchers
    return " or ".join(f"{function}({selector(name, where)}[{window}])" for name in names)


def _quantile(expr: Quantile, window: str, matchers: tuple[Matcher, ...]) -> str:
    if not 0.0 <= expr.q <= 1.0:
        raise SignalError(f"a quantile of {expr.q} does not exist", hint="use 0 to 1")
    buckets = Select(tuple(f"{name}_bucket" for name in expr.select.names), expr.select.where)
    rates = _over("rate", buckets, window, matchers)
    by = _labels((*(label for label in expr.by if label != "le"), "le"))
    return f"histogram_quantile({_number(expr.q)}, sum by ({by}) ({rates}))"


def _duration(seconds: float) -> str:
    milliseconds = round(seconds * 1000) if math.isfinite(seconds) else 0
    if milliseconds <= 0:
        raise SignalError(f"a look-back of {seconds} seconds is no window", hint="use more than 0")
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


def _number(value: float) -> str:
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _labels(names: tuple[str, ...]) -> str:
    return ", ".join(_label(name) for name in names)


def _label(name: str) -> str:
    if not _LABEL_NAME.fullmatch(name):
        raise SignalError(f"{name!r} is no label name", hint="use letters, digits and _")
    return name


def _quote(value: str) -> str:
    return '"' + "".join(_ESCAPES.get(char, char) for char in value) + '"'
