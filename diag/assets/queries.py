"""Takes PromQL apart: what an expression reads, what of it could be missing, what it would see.

Parsing is promql-parser's, a binding of the GreptimeDB project's parser; it follows Prometheus 2.45.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import promql_parser as promql

from diag.assets.rules.model import Recording
from diag.errors import DiagError
from diag.signals.algebra import Matcher, MatchOp
from diag.signals.promql import selector

__all__ = ["Selection", "inlined", "lacking", "matches", "parsed", "selections", "text", "unconditional"]

Node = Any  # promql_parser's nodes share no useful base.

_STRING_OR_SPACE = re.compile(r'("(?:\\.|[^"\\])*")|\s+')
_COMPARES = {"==", "!=", ">", "<", ">=", "<="}
_OPS: dict[str, MatchOp] = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
# These give a row whether or not their input is there.
_ALWAYS = {"absent", "absent_over_time", "vector"}
# Coarse is enough to see a row at all; finer than a recording's look-back, so that none falls between.
_SUBQUERY_STEP_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Selection:
    """Series that an expression selects, without its look-back and offset. ``name`` is empty where the
    metric is chosen by a pattern."""

    name: str
    matchers: tuple[Matcher, ...] = ()

    def __str__(self) -> str:
        """It as PromQL."""
        return selector(self.name, self.matchers) if self.name else "{" + self._conditions() + "}"

    def _conditions(self) -> str:
        return selector("x", self.matchers).removeprefix("x{").removesuffix("}")

    @property
    def whole(self) -> Selection:
        """Every series of that metric."""
        return Selection(self.name)


@lru_cache(maxsize=4096)
def parsed(expr: str) -> Node:
    """The tree of ``expr``; ``DiagError`` when it is no PromQL."""
    try:
        return promql.parse(expr)
    except ValueError as error:
        said = " ".join(str(error).split())[:160]
        raise DiagError(f"this is no PromQL: {expr[:80]!r}", hint=said) from None


def selections(node: Node) -> tuple[Selection, ...]:
    """Everything ``node`` selects, each once, from left to right.

    By hand: the parser's own walk copies every subtree it comes to."""
    found: dict[Selection, None] = {}
    ahead = [node]
    while ahead:
        match ahead.pop():
            case promql.VectorSelector() as inner:
                found[_selection(inner)] = None
            case promql.MatrixSelector() as inner:
                found[_selection(inner.vector_selector)] = None
            case promql.BinaryExpr() as inner:
                ahead += (inner.rhs, inner.lhs)
            case promql.Call() as inner:
                ahead += reversed(inner.args)
            case promql.NumberLiteral() | promql.StringLiteral():
                pass
            case inner:
                ahead.append(inner.expr)
    return tuple(found)


def text(node: Node) -> str:
    """``node`` as PromQL on one line: stores limit the length of a query.

    The parser's own short form forgets to escape, so its long form is folded, strings left alone."""
    return _STRING_OR_SPACE.sub(lambda found: found.group(1) or " ", node.prettify()).strip()


def matches(matcher: Matcher, value: str) -> bool:
    """Whether a label's ``value`` (empty: absent) fits; Python's regular expressions stand in for RE2's."""
    if matcher.op in ("=", "!="):
        return (value == matcher.value) is (matcher.op == "=")
    return bool(re.fullmatch(matcher.value, value)) is (matcher.op == "=~")


def lacking(node: Node, there: Callable[[Selection], bool]) -> tuple[Selection, ...]:
    """The selections whose absence blinds ``node``; none when it can give a row.

    Of alternatives (``or``) one is enough; everything else needs all its parts, but ``unless`` only
    its left one."""
    match node:
        case promql.VectorSelector():
            one = _selection(node)
            return () if there(one) else (one,)
        case promql.MatrixSelector():
            return lacking(node.vector_selector, there)
        case promql.BinaryExpr():
            left = lacking(node.lhs, there)
            if str(node.op) == "unless" or (str(node.op) == "or" and not left):
                return left
            right = lacking(node.rhs, there)
            if str(node.op) == "or" and not right:
                return ()
            return tuple(dict.fromkeys((*left, *right)))
        case promql.Call():
            if node.func.name in _ALWAYS:
                return ()
            parts = [lacking(part, there) for part in node.args]
            return tuple(dict.fromkeys(one for part in parts for one in part))
        case promql.NumberLiteral() | promql.StringLiteral():
            return ()
        case _:
            return lacking(node.expr, there)


def unconditional(node: Node) -> Node:
    """``node`` without its comparisons: what it would have rows for whenever its inputs are there."""
    return promql.transform(node, post_visit=_without_condition)


def _without_condition(node: Node) -> Node | None:
    if isinstance(node, promql.Call) and node.func.name in ("absent", "absent_over_time"):
        return promql.parse("vector(1)")
    if not isinstance(node, promql.BinaryExpr):
        return None
    if str(node.op) == "unless":
        return node.lhs
    if str(node.op) not in _COMPARES or (node.modifier is not None and node.modifier.return_bool):
        return None
    if _is_scalar(node.rhs):
        return node.lhs
    if _is_scalar(node.lhs):
        return node.rhs
    matching = node.modifier or ""
    return promql.parse(f"({text(node.lhs)}) {node.op} bool {matching} ({text(node.rhs)})")


def _is_scalar(node: Node) -> bool:
    match node:
        case promql.NumberLiteral():
            return True
        case promql.ParenExpr() | promql.UnaryExpr():
            return _is_scalar(node.expr)
        case promql.BinaryExpr():
            return _is_scalar(node.lhs) and _is_scalar(node.rhs)
        case promql.Call():
            return bool(node.func.return_type == promql.ValueType.Scalar)
        case _:
            return False


def inlined(
    node: Node, recorded: Mapping[str, Sequence[Recording]], there: Callable[[Selection], bool]
) -> Node:
    """``node`` with recorded series that are not there replaced by what would be recorded.

    So a rule that reads recordings can be judged before they are loaded."""
    if not any(one.name in recorded and not there(one) for one in selections(node)):
        return node

    def visit(inner: Node) -> Node | None:
        if isinstance(inner, promql.MatrixSelector):
            own, span = inner.vector_selector, inner.range
        elif isinstance(inner, promql.VectorSelector):
            own, span = inner, None
        else:
            return None
        one = _selection(own)
        if one.name not in recorded or there(one):
            return None
        body = _recorded_text(one, recorded[one.name])
        seconds = round(span.total_seconds()) if span else 0
        offset = f" offset {round(own.offset.total_seconds())}s" if own.offset else ""
        if span:
            step = max(1, min(seconds // 2, _SUBQUERY_STEP_SECONDS))
            return promql.parse(f"({body})[{seconds}s:{step}s]{offset}")
        return promql.parse(f"last_over_time(({body})[1m:1m]{offset})" if offset else f"({body})")

    return promql.transform(node, pre_visit=visit)


def _recorded_text(one: Selection, candidates: Sequence[Recording]) -> str:
    fitting = [rule for rule in candidates if all(_fits(rule, matcher) for matcher in one.matchers)]
    return " or ".join(_labelled(rule) for rule in fitting or candidates)


def _fits(rule: Recording, matcher: Matcher) -> bool:
    """Whether a rule's own labels allow ``matcher``; what only its series could say is left open."""
    return matcher.label not in rule.labels or matches(matcher, rule.labels[matcher.label])


def _labelled(rule: Recording) -> str:
    text = f"({rule.expr})"
    for label, value in rule.labels.items():
        text = f'label_replace({text}, "{label}", "{value}", "", "")'
    return text


def _selection(node: Node) -> Selection:
    matchers = tuple(
        Matcher(one.name, _OPS[str(one.op).removeprefix("MatchOp.")], one.value)
        for one in node.matchers.matchers
    )
    name = node.name or next((m.value for m in matchers if m.label == "__name__" and m.op == "="), "")
    rest = tuple(m for m in matchers if not (m.label == "__name__" and name))
    return Selection(cast(str, name), rest)
