"""The mutants themselves: that the ways to break a rule are really tried."""

from __future__ import annotations

from pathlib import Path

import promql_parser
import pytest

from tests.rules.mutation import mutants, title_of
from tests.rules.recording_mutation import recording_mutants
from tests.rules.rulefiles import Rule


def _rule(expr: str, *, hold: float = 0.0, keep: float = 0.0) -> Rule:
    return Rule(Path("x.yml"), "g", expr, "LLMThing", "", hold, keep, {}, {})


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        ("a:b > 3", {"a:b < 3", "a:b > 6", "a:b > 1.5", "a:b_renamed > 3"}),
        ("a{x=~'y|z'} > 0", {"a{x=~'(y|z)x'} > 0"}),
        ("a{x='y'} == 0", {"a{x='y'} != 0", "a{x='y'} == 1", "a{x='yx'} == 0", "a_renamed{x='y'} == 0"}),
        ("a:b > 0 or c:d < 2", {"a:b > 0", "c:d < 2"}),
        ("a:b > 0 and on (i) c:d < 2", {"a:b > 0", "c:d < 2"}),
        ("rate(x_total[5m]) > 0", {"rate(x[5m]) > 0", "rate(x_total_renamed[5m]) > 0"}),
        ("min_over_time(a[5m]) > 0", {"max_over_time(a[5m]) > 0"}),
        ("up:x offset 5m > 300", {"up:x offset 5m > 600"}),
    ],
)
def test_every_way_is_tried(expr: str, wanted: set[str]) -> None:
    found = {one.rule.expr.replace('"', "'") for one in mutants(_rule(expr))}
    assert wanted <= found, f"only {sorted(found)}"


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        ("sum by (i, j) (rate(x[5m]))", {"max by (i, j) (rate(x[5m]))", "avg by (i, j) (rate(x[5m]))"}),
        ("sum by (i, j) (rate(x[5m]))", {"sum by (j) (rate(x[5m]))", "sum by (i) (rate(x[5m]))"}),
        ("rate(x[5m])", {"increase(x[5m])", "irate(x[5m])", "rate(x[150s])", "rate(x[600s])"}),
        ("histogram_quantile(0.95, x{})", {"histogram_quantile(0.99, x{})"}),
        ("(a{} >= 0) <= 9", {"(a{}) <= 9", "(a{} >= 0)"}),
        ("clamp(a{}, 0, 1)", {"a{}"}),
        ("a{} + b{}", {"a{} - b{}", "a{}", "b{}"}),
        ("a{x=~'y|(z|w)'}", {"a{x=~'(z|w)'}", "a{x=~'y|(z)'}", "a{x!~'y|(z|w)'}", "a{}"}),
        ("a{x=''}", {"a{x='x'}", "a{x!=''}", "a{}"}),
        (
            "label_replace(a{}, 'u', '$1', 'U', '(.+)')",
            {"a{}", "label_replace(a{}, 'ux', '$1', 'U', '(.+)')"},
        ),
    ],
)
def test_every_way_to_break_a_recording_is_tried(expr: str, wanted: set[str]) -> None:
    found = {_plain(one.rule.expr) for one in recording_mutants(_rule(expr.replace("'", '"')))}
    assert {_plain(one) for one in wanted} <= found, f"only {sorted(found)}"


def _plain(expr: str) -> str:
    return " ".join(promql_parser.parse(expr).prettify().replace('"', "'").split())


@pytest.mark.parametrize(
    ("expr", "idle"),
    [
        ("a{} + ((max by (i) (b{})) * 0)", "a{} + ((min by (i) (b{})) * 0)"),
        ("a{} + ((max by (i) (b{})) * 0)", "a{} - ((max by (i) (b{})) * 0)"),
        ("a{} unless (max by (i) (b{}))", "a{} unless (min by (i) (b{}))"),
    ],
)
def test_a_value_that_nobody_reads_is_not_broken(expr: str, idle: str) -> None:
    found = {_plain(one.rule.expr) for one in recording_mutants(_rule(expr))}
    assert found
    assert _plain(idle) not in found


def test_a_recording_is_named_with_its_producer() -> None:
    rule = Rule(Path("x.yml"), "g", "a", "", "llm:x", 0.0, 0.0, {"producer": "vllm"}, {})
    assert title_of(rule) == 'llm:x{producer="vllm"}'
    assert title_of(_rule("a")) == "LLMThing"


def test_waits_are_shortened_and_stretched() -> None:
    found = {one.change: one.rule for one in mutants(_rule("a:b > 0", hold=300.0, keep=60.0))}
    assert found["for: none"].for_seconds == 0
    assert found["for: half"].for_seconds == 150
    assert found["for: twice"].for_seconds == 600
    assert found["keep_firing_for: none"].keep_firing_seconds == 0


def test_no_mutant_equals_its_rule() -> None:
    rule = _rule("vector(1)")
    assert all(one.rule.expr != rule.expr for one in mutants(rule))
