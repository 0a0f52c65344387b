"""Which labels the answer of an expression bears, read from the expression alone.

``None`` stands for "whatever the metric has": nothing is known, so nothing is complained about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import promql_parser as promql

__all__ = ["Labels", "given_labels", "matched", "output_labels"]

Labels = frozenset[str] | None

_ADDING = {"label_replace": 1, "label_join": 1}
_SETS = ("and", "or", "unless")


def output_labels(node: Any, known: Mapping[str, Labels]) -> Labels:
    """The labels that the answer of ``node`` can bear. ``known``: of recorded series, by name."""
    match node:
        case promql.ParenExpr():
            return output_labels(node.expr, known)
        case promql.UnaryExpr() | promql.SubqueryExpr():
            return output_labels(node.expr, known)
        case promql.VectorSelector():
            return _selected(node, known)
        case promql.MatrixSelector():
            return _selected(node.vector_selector, known)
        case promql.AggregateExpr():
            return _aggregated(node, known)
        case promql.Call():
            return _called(node, known)
        case promql.BinaryExpr():
            return _joined(node, known)
    return frozenset()


def matched(node: Any) -> tuple[str, frozenset[str]] | None:
    """``("on", labels)`` or ``("ignoring", labels)`` of a binary expression, None without either."""
    matching = node.modifier.matching if node.modifier else None
    if matching is None:
        return None
    kind = "on" if matching.type == promql.LabelModifierType.Include else "ignoring"
    return kind, frozenset(matching.labels)


def given_labels(selector: Any) -> dict[str, str]:
    """What a selector's ``=`` matchers say, by label."""
    return {m.name: m.value for m in selector.matchers.matchers if m.op == promql.MatchOp.Equal}


def _selected(node: Any, known: Mapping[str, Labels]) -> Labels:
    return known.get(node.name or "")


def _aggregated(node: Any, known: Mapping[str, Labels]) -> Labels:
    inner = output_labels(node.expr, known)
    if node.modifier is None:
        return inner if str(node.op) in ("topk", "bottomk") else frozenset()
    names = frozenset(node.modifier.labels)
    if node.modifier.type == promql.AggModifierType.By:
        return names
    return None if inner is None else inner - names


def _called(node: Any, known: Mapping[str, Labels]) -> Labels:
    if node.func.name in ("vector", "time", "scalar"):
        return frozenset()
    if node.func.name == "absent":
        selector = node.args[0]
        return (
            frozenset(given_labels(selector)) if isinstance(selector, promql.VectorSelector) else frozenset()
        )
    of_vectors = [
        one for one in node.args if not isinstance(one, promql.NumberLiteral | promql.StringLiteral)
    ]
    inner = output_labels(of_vectors[0], known) if of_vectors else frozenset()
    if inner is not None and node.func.name in _ADDING:
        return inner | {node.args[_ADDING[node.func.name]].val}
    if inner is not None and node.func.name == "histogram_quantile":
        return inner - {"le"}
    return inner


def _joined(node: Any, known: Mapping[str, Labels]) -> Labels:
    left, right = output_labels(node.lhs, known), output_labels(node.rhs, known)
    if str(node.op) == "or":
        return None if left is None or right is None else left | right
    if str(node.op) in _SETS:
        return left
    if isinstance(node.lhs, promql.NumberLiteral):
        return right
    if isinstance(node.rhs, promql.NumberLiteral):
        return left
    card = node.modifier.card if node.modifier else promql.VectorMatchCardinality.OneToOne
    if card in (promql.VectorMatchCardinality.ManyToOne, promql.VectorMatchCardinality.OneToMany):
        many = left if card == promql.VectorMatchCardinality.ManyToOne else right
        return None if many is None else many | frozenset(node.modifier.group_labels)
    match = matched(node)
    if match is None:
        return left if right is None or left is None else left & right
    kind, names = match
    if kind == "on":
        return names
    return None if left is None else left - names
