"""More ways to break a recording than an alert: what it adds up, keeps, looks back over and spells anew.

Besides what ``mutation`` tries: another aggregation, a label less to aggregate by, another function or
look-back over time, another quantile, arithmetic turned round or without a side, no limit, no clamp, no
relabelling, a condition turned, left out or without one of its alternatives.

What is multiplied by 0 or stands behind ``unless`` says only where there is a value. Which one it is, is
not broken there, nor what lets a zero stand in for one thing more often: nobody could tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import promql_parser

from tests.rules.mutation import Mutant, Token, around, differing, instead, short, tokens_of, without_sides
from tests.rules.rulefiles import Rule, seconds

__all__ = ["recording_mutants"]

_AGGREGATED = {
    "sum": ("max", "avg"),
    "max": ("min", "sum"),
    "min": ("max", "sum"),
    "avg": ("max", "sum"),
    "count": ("sum", "max"),
}
_OVER = {
    "rate": ("increase", "irate"),
    "increase": ("rate", "delta"),
    "avg_over_time": ("max_over_time", "last_over_time"),
    "last_over_time": ("max_over_time", "min_over_time"),
    "max_over_time": ("last_over_time",),
    "min_over_time": ("last_over_time",),
}
_QUANTILES = {"0.5": "0.95", "0.95": "0.99", "0.99": "0.95"}
_ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"}
_OPPOSITE = {"=": "!=", "!=": "=", "=~": "!~", "!~": "=~"}
_VALUED = ("word", "other", "number", "comparison")
_COMPARED = (">=", "<=", ">", "<", "==", "!=")
_UNWRAPPED = ("clamp", "floor", "label_replace", "label_join")


def recording_mutants(rule: Rule) -> list[Mutant]:
    """Every mutant of a recording."""
    expr = " ".join(rule.expr.split())
    return differing(rule, (*_by_text(expr), *without_sides(expr), *_by_tree(expr)))


def _by_text(expr: str) -> Iterator[tuple[str, str]]:
    tokens = tokens_of(expr)
    kept, unvalued, zeros = _in_label_lists(tokens), _unvalued(tokens), _zeros(tokens)
    for at, token in enumerate(tokens):
        if at not in unvalued or not _is_value(token):
            for text, change in instead(tokens, at, token):
                yield _spliced(tokens, at, at, text), change
        if at in kept:
            yield (
                _spliced(tokens, *_with_comma(tokens, at), ""),
                f"by {token.text} no more {around(tokens, at)}",
            )
        elif token.inside:
            yield from _conditions(tokens, at, dropped=at not in zeros)
        else:
            for text in _instead(tokens, at, token, zero=at in zeros) if at not in unvalued else ():
                yield _spliced(tokens, at, at, text), f"{token.text} → {text} {around(tokens, at)}"


def _is_value(token: Token) -> bool:
    return token.kind in ("number", "comparison") or token.text in _OVER


def _instead(tokens: list[Token], at: int, token: Token, *, zero: bool) -> Iterator[str]:
    before, after = _next_to(tokens, at)
    if token.kind == "word":
        if after in ("by", "without"):
            yield from _AGGREGATED.get(token.text, ())
        yield from _OVER.get(token.text, ())
    elif token.kind == "range":
        look_back = seconds(token.text[1:-1])
        yield f"[{look_back / 2:.0f}s]"
        if not zero:
            yield f"[{look_back * 2:.0f}s]"
    elif token.kind == "number" and _called(tokens, at) == "histogram_quantile":
        yield _QUANTILES.get(token.text, "0.5")
    elif token.kind == "other" and token.text in _ARITHMETIC and before != "(":
        yield _ARITHMETIC[token.text]
    elif token.kind == "string":  # an argument of a relabelling
        yield token.text[:-1] + "x" + token.text[-1]


def _next_to(tokens: list[Token], at: int) -> tuple[str, str]:
    before = next((t.text for t in reversed(tokens[:at]) if not t.text.isspace()), "")
    after = next((t.text for t in tokens[at + 1 :] if not t.text.isspace()), "")
    return before, after


def _called(tokens: list[Token], at: int) -> str:
    """The function whose first argument the token is."""
    texts = [t.text for t in tokens[:at] if not t.text.isspace()]
    return texts[-2] if texts[-1:] == ["("] and len(texts) > 1 else ""


def _in_label_lists(tokens: list[Token]) -> set[int]:
    found: set[int] = set()
    within = False
    for at, token in enumerate(tokens):
        if token.kind == "word" and token.text in ("by", "without"):
            within = True
        elif within and token.text == ")":
            within = False
        elif within and token.kind == "word":
            found.add(at)
    return found


def _unvalued(tokens: list[Token]) -> set[int]:
    """Places where another value of the same labels would change nothing: in ``(…) * 0`` unless a limit
    judges it there, in ``unless (…)``, and the sign in ``+ ((…) * 0)``."""
    found: set[int] = set()
    ends = _closing(tokens)
    for at, end in ends.items():
        before, _ = _next_to(tokens, at)
        _, after = _next_to(tokens, end)
        texts = [t.text for t in tokens[at : end + 1] if not t.text.isspace()]
        nothing = texts[-3:] == ["*", "0", ")"]
        if before in ("+", "-") and nothing:
            found.add(next(i for i in range(at - 1, -1, -1) if tokens[i].text == before))
        times_zero = after == "*" and _next_to(tokens, _place_of(tokens, end, "*"))[1] == "0"
        if (times_zero or before == "unless") and not any(t.kind == "comparison" for t in tokens[at:end]):
            found |= {i for i in range(at, end) if tokens[i].kind in _VALUED}
    return found | {i for i in _zeros(tokens) if tokens[i].kind in _VALUED}


def _zeros(tokens: list[Token]) -> set[int]:
    """Places in ``or ((…) * 0)``: the zero of one thing while another is there. What lets that zero through
    more often adds no answer, as the sum it is in lacks the thing."""
    found: set[int] = set()
    ends = _closing(tokens)
    for at, end in ends.items():
        texts = [t.text for t in tokens[at : end + 1] if not t.text.isspace()]
        if _next_to(tokens, at)[0] == "or" and texts[-3:] == ["*", "0", ")"] and texts[1] == "(":
            inner = next(i for i in range(at + 1, end) if tokens[i].text == "(")
            found |= set(range(inner, ends[inner]))
    return found


def _place_of(tokens: list[Token], after: int, text: str) -> int:
    return next(i for i in range(after, len(tokens)) if tokens[i].text == text)


def _closing(tokens: list[Token]) -> dict[int, int]:
    """Place of the closing bracket by that of the opening one."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.text == "(":
            opened.append(at)
        elif token.text == ")":
            found[opened.pop()] = at
    return found


def _with_comma(tokens: list[Token], at: int) -> tuple[int, int]:
    """First and last token of a list's item and the comma beside it."""
    before, after = _next_to(tokens, at)
    first = last = at
    if after == ",":
        last = next(i for i in range(at + 1, len(tokens)) if tokens[i].text == ",")
    elif before == ",":
        first = next(i for i in range(at - 1, -1, -1) if tokens[i].text == ",")
    return first, last


def _spliced(tokens: list[Token], first: int, last: int, text: str) -> str:
    return "".join([*(t.text for t in tokens[:first]), text, *(t.text for t in tokens[last + 1 :])])


def _conditions(tokens: list[Token], at: int, *, dropped: bool) -> Iterator[tuple[str, str]]:
    """A condition turned round, left out, of an empty value, and without each of its alternatives."""
    token = tokens[at]
    if token.text in _OPPOSITE and token.kind != "string":
        turned = _OPPOSITE[token.text]
        yield _spliced(tokens, at, at, turned), f"{token.text} turned to {turned} {around(tokens, at)}"
    if token.kind != "string":
        return
    first = next(i for i in range(at, -1, -1) if tokens[i].kind == "word")
    start, end = min(first, _with_comma(tokens, first)[0]), _with_comma(tokens, at)[1]
    gone = "".join(t.text for t in tokens[first : at + 1])
    if dropped:
        yield _spliced(tokens, start if end == at else first, end, ""), f"without {gone} {around(tokens, at)}"
    if token.text == '""':
        yield _spliced(tokens, at, at, '"x"'), f'"" → "x" {around(tokens, at)}'
    if "~" in "".join(t.text for t in tokens[at - 1 : at]):
        for text, less in _fewer(token.text[1:-1]):
            yield _spliced(tokens, at, at, f'"{text}"'), f"without {less} of {token.text}"


def _fewer(pattern: str) -> Iterator[tuple[str, str]]:
    """``pattern`` without one of the alternatives in it, and that one."""
    if "|" not in pattern:
        return
    pieces = re.split(r"([|()])", pattern)
    for at in range(0, len(pieces), 2):
        left, right = "".join(pieces[at - 1 : at]), "".join(pieces[at + 1 : at + 2])
        if right == "|" and left in ("", "(", "|"):
            yield "".join([*pieces[:at], *pieces[at + 2 :]]), pieces[at]
        elif left == "|" and right in ("", ")"):
            yield "".join([*pieces[: at - 1], *pieces[at + 1 :]]), pieces[at]


def _by_tree(expr: str) -> Iterator[tuple[str, str]]:
    tree = promql_parser.parse(expr)
    nodes = _nodes(tree)
    unvalued: set[int] = set()
    zeros: set[int] = set()
    for number, node in enumerate(nodes):
        # Children come before their parents; the last before a product with 0 is the 0 itself.
        if _is_zero(node) and not any(op in node.lhs.prettify() for op in _COMPARED):
            unvalued |= set(range(number - 1 - len(_nodes(node.lhs)), number - 1))
        if isinstance(node, promql_parser.BinaryExpr) and str(node.op) == "or" and _zero_in(node.rhs):
            zeros |= set(range(number - len(_nodes(node.rhs)), number - 2))
    for number, node in enumerate(nodes):
        skipped = number in unvalued and (_is_zero(node) or isinstance(node, promql_parser.Call))
        for choice, (_, change) in enumerate([] if skipped or number in zeros else _simpler(node)):
            yield _simplified(tree, number, choice), change


def _nodes(tree: Any) -> list[Any]:
    found: list[Any] = []
    promql_parser.transform(tree, None, found.append)
    return found


def _is_zero(node: Any) -> bool:
    is_product = isinstance(node, promql_parser.BinaryExpr) and str(node.op) == "*"
    return is_product and node.rhs.prettify().strip() == "0"


def _zero_in(node: Any) -> bool:
    return _is_zero(node.expr) if isinstance(node, promql_parser.ParenExpr) else _is_zero(node)


def _simplified(tree: Any, number: int, choice: int) -> str:
    visited = 0

    def visit(node: Any) -> Any:
        nonlocal visited
        visited += 1
        return _simpler(node)[choice][0] if visited == number + 1 else None

    text: str = promql_parser.transform(tree, None, visit).prettify()
    return text


def _simpler(node: Any) -> list[tuple[Any, str]]:
    """What can stand in the place of ``node``, and what is then gone."""
    if isinstance(node, promql_parser.BinaryExpr):
        op = str(node.op)
        if op in _COMPARED:
            return [(node.lhs, f"without {op} {short(node.rhs)} of {short(node.lhs)}")]
        if op in _ARITHMETIC:
            left, right = short(node.lhs), short(node.rhs)
            return [
                (node.lhs, f"without {op} {right} of {left}"),
                (node.rhs, f"without {left} {op} of {right}"),
            ]
    if isinstance(node, promql_parser.Call) and node.func.name in _UNWRAPPED:
        first, *rest = node.args
        arguments = ", ".join(short(one) for one in rest)
        return [(first, f"without {node.func.name} {arguments} of {short(first)}")]
    return []
