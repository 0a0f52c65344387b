"""Break a rule in one place, many ways: each result is a mutant that its tests must notice.

What is tried: turn a comparison round; double and halve a number; rename a metric and drop its ``_total``;
break the value of a matcher; leave out a side of ``and``, ``or`` and ``unless``; swap the smallest over a
window for the largest; wait no time, wait half.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import promql_parser

from tests.rules.rulefiles import Rule

__all__ = [
    "Mutant",
    "Outcome",
    "Token",
    "around",
    "differing",
    "instead",
    "mutants",
    "short",
    "title_of",
    "tokens_of",
    "without_sides",
]

_TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<range>\[[^\]]*\])
    |(?P<duration>\b(?:\d+(?:ms|[smhdwy]))+\b)
    |(?P<number>(?<![\w.:])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b)
    |(?P<word>[a-zA-Z_][a-zA-Z0-9_:]*)
    |(?P<matching>=~|!~)
    |(?P<comparison>>=|<=|==|!=|>|<)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_TURNED = {">": "<", "<": ">", ">=": "<", "<=": ">", "==": "!=", "!=": "=="}
_SWAPPED = {"min_over_time": "max_over_time", "max_over_time": "min_over_time"}
_SETS = ("and", "or", "unless")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken ``rule`` and what was done to it."""

    rule: Rule
    change: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a mutant was noticed."""

    mutant: Mutant
    killed: bool

    @property
    def title(self) -> str:
        """The rule it is about, see ``title_of``."""
        return title_of(self.mutant.rule)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of an expression: ``kind`` is one of string, range, duration, number, word, matching,
    comparison and other; ``inside`` whether it stands within the braces of a selector."""

    kind: str
    text: str
    inside: bool


def title_of(rule: Rule) -> str:
    """Name of an alert or of a recording; with its ``producer`` where several engines write one name:
    ``llm:x{producer="vllm"}``."""
    producer = rule.labels.get("producer")
    return rule.alert or (f'{rule.record}{{producer="{producer}"}}' if producer else rule.record)


def mutants(rule: Rule) -> list[Mutant]:
    """Every mutant of ``rule`` that still parses and differs from it."""
    return [*differing(rule, (*_by_text(rule.expr), *without_sides(rule.expr))), *_waits(rule)]


def differing(rule: Rule, changed: Iterable[tuple[str, str]]) -> list[Mutant]:
    """Of ``changed``, expressions each with what was done, those that parse and differ from ``rule`` and
    from each other."""
    original = promql_parser.parse(rule.expr).prettify()
    found: dict[str, Mutant] = {}
    for expr, change in changed:
        try:
            parsed = promql_parser.parse(expr).prettify()
        except ValueError:
            continue
        if parsed != original:
            found.setdefault(parsed, Mutant(replace(rule, expr=expr), change))
    return list(found.values())


def _waits(rule: Rule) -> Iterator[Mutant]:
    if rule.for_seconds:
        yield Mutant(replace(rule, for_seconds=0.0), "for: none")
        yield Mutant(replace(rule, for_seconds=rule.for_seconds / 2), "for: half")
        yield Mutant(replace(rule, for_seconds=rule.for_seconds * 2), "for: twice")
    if rule.keep_firing_seconds:
        yield Mutant(replace(rule, keep_firing_seconds=0.0), "keep_firing_for: none")


def tokens_of(expr: str) -> list[Token]:
    """The pieces of ``expr`` in order; together they are its text."""
    found: list[Token] = []
    depth = 0
    for match in _TOKEN.finditer(expr):
        kind, text = str(match.lastgroup), match.group()
        depth += (text == "{") - (text == "}")
        found.append(Token(kind, text, depth > 0))
    return found


def _by_text(expr: str) -> Iterator[tuple[str, str]]:
    tokens = tokens_of(expr)
    for at, token in enumerate(tokens):
        for text, change in instead(tokens, at, token):
            yield "".join([*(t.text for t in tokens[:at]), text, *(t.text for t in tokens[at + 1 :])]), change


def instead(tokens: list[Token], at: int, token: Token) -> Iterator[tuple[str, str]]:
    """What can stand in the place of a token, and what is then changed."""
    if token.kind == "comparison" and not token.inside:
        yield _TURNED[token.text], f"{token.text} turned to {_TURNED[token.text]} {around(tokens, at)}"
    elif token.kind == "number" and not token.inside:
        for text in _other_numbers(float(token.text)):
            yield text, f"{token.text} → {text} {around(tokens, at)}"
    elif token.kind == "string" and token.inside and len(token.text) > 2:
        # In brackets, since of "a|b" a letter at the end would only break b.
        regex = any(one.kind == "matching" for one in tokens[at - 1 : at])
        inner = f"({token.text[1:-1]})x" if regex else token.text[1:-1] + "x"
        yield f'"{inner}"', f"{token.text} broken {around(tokens, at)}"
    elif token.kind == "word" and not token.inside:
        if token.text in _SWAPPED:
            yield _SWAPPED[token.text], f"{token.text} → {_SWAPPED[token.text]}"
        elif _is_metric(tokens, at):
            yield f"{token.text}_renamed", f"{token.text} renamed"
            if token.text.endswith("_total"):
                yield token.text.removesuffix("_total"), f"{token.text} without _total"


def _is_metric(tokens: list[Token], at: int) -> bool:
    """A word that is followed by a selector or is a metric by its look: none of PromQL's own has a prefix."""
    word = tokens[at].text
    following = next((t.text[0] for t in tokens[at + 1 :] if not t.text.isspace()), "")
    if following == "(":
        return False
    return following in ("{", "[") or ":" in word or word.startswith(("DCGM_", "nvidia_smi_", "llmdiag_"))


def _other_numbers(value: float) -> tuple[str, ...]:
    if value == 0:
        return ("1",)
    return (f"{value * 2:.10g}", f"{value / 2:.10g}")


def around(tokens: list[Token], at: int) -> str:
    """The text near a token, to tell one place from another."""
    text = " ".join("".join(t.text for t in tokens[max(0, at - 14) : at + 8]).split())
    return f"in …{text}…"


def without_sides(expr: str) -> Iterator[tuple[str, str]]:
    """``expr`` without one side of each ``and``, ``or`` and ``unless``, and what is then gone."""
    tree = promql_parser.parse(expr)
    for number in range(_count(tree)):
        for side in ("lhs", "rhs"):
            kept, change = _without(tree, number, side)
            yield kept, change


def _count(tree: Any) -> int:
    return sum(1 for _ in _set_operations(tree))


def _set_operations(tree: Any) -> list[Any]:
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.BinaryExpr) and str(node.op) in _SETS:
            found.append(node)

    promql_parser.walk(tree, None, visit)
    return found


def _without(tree: Any, number: int, side: str) -> tuple[str, str]:
    seen = iter(range(1_000_000))
    change = ""

    def visit(node: Any) -> Any:
        nonlocal change
        if not (isinstance(node, promql_parser.BinaryExpr) and str(node.op) in _SETS):
            return None
        if next(seen) != number:
            return None
        dropped = node.rhs if side == "lhs" else node.lhs
        change = f"without `{short(dropped)}` of {node.op}"
        return getattr(node, side)

    kept: Callable[[], str] = promql_parser.transform(tree, None, visit).prettify
    return kept(), change


def short(node: Any) -> str:
    """The text of a part of a parsed expression, on one line, cut to 70 characters."""
    text = " ".join(node.prettify().split())
    return text if len(text) <= 70 else text[:67] + "…"
