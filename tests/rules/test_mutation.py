"""The mutants themselves: that the ways to break a rule are really tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.mutation import mutants
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


def test_waits_are_shortened_and_stretched() -> None:
    found = {one.change: one.rule for one in mutants(_rule("a:b > 0", hold=300.0, keep=60.0))}
    assert found["for: none"].for_seconds == 0
    assert found["for: half"].for_seconds == 150
    assert found["for: twice"].for_seconds == 600
    assert found["keep_firing_for: none"].keep_firing_seconds == 0


def test_no_mutant_equals_its_rule() -> None:
    rule = _rule("vector(1)")
    assert all(one.rule.expr != rule.expr for one in mutants(rule))
