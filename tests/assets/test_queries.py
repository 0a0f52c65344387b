"""PromQL taken apart: what an expression reads, and whether it can give a row."""

from __future__ import annotations

import promql_parser
import pytest

from diag.assets.checking import Expectation, expectations
from diag.assets.queries import Selection, inlined, lacking, matches, parsed, selections, text, unconditional
from diag.assets.rules.model import Recording
from diag.errors import DiagError
from diag.signals.algebra import Matcher


def _missing(expr: str, *present: str) -> list[str]:
    return [str(one) for one in lacking(parsed(expr), lambda one: one.name in present)]


def test_a_selection_is_written_as_it_was_read() -> None:
    (one,) = selections(parsed('rate(a:b{x="1",y=~"p|q",z!="",w!~"v.*"}[5m] offset 1h)'))
    assert one == Selection(
        "a:b",
        (
            Matcher("x", "=", "1"),
            Matcher("y", "=~", "p|q"),
            Matcher("z", "!=", ""),
            Matcher("w", "!~", "v.*"),
        ),
    )
    assert str(one) == 'a:b{x="1",y=~"p|q",z!="",w!~"v.*"}'
    assert str(one.whole) == "a:b"


def test_a_pattern_of_names_is_a_selection_without_a_name() -> None:
    (one,) = selections(parsed('{__name__=~"vllm:.+",job="x"}'))
    assert (one.name, str(one)) == ("", '{__name__=~"vllm:.+",job="x"}')
    (plain,) = selections(parsed('{__name__="a"}'))
    assert (plain.name, plain.matchers) == ("a", ())


@pytest.mark.parametrize(
    ("expr", "present", "missing"),
    [
        ("a", ["a"], []),
        ("a", [], ["a"]),
        ("rate(a[5m]) or rate(b[5m])", ["b"], []),
        ("rate(a[5m]) or rate(b[5m])", [], ["a", "b"]),
        ("a / b", ["a"], ["b"]),
        ("a and b", ["b"], ["a"]),
        ("a unless b", ["a"], []),
        ("a unless b", ["b"], ["a"]),
        ("a > 1", ["a"], []),
        ("1 < a", [], ["a"]),
        ("absent(a)", [], []),
        ("absent_over_time(a[5m]) and b", [], ["b"]),
        ("vector(1)", [], []),
        ("time() - a", [], ["a"]),
        ('label_replace(a, "x", "$1", "y", "(.*)")', [], ["a"]),
        ("histogram_quantile(0.9, sum by (le) (rate(a_bucket[5m])))", [], ["a_bucket"]),
        ("topk(3, a)", [], ["a"]),
        ("max_over_time((a / b)[1h:1m])", ["a"], ["b"]),
        ("-(a)", [], ["a"]),
        ("(a or b) / c", ["b"], ["c"]),
        ("a / a", [], ["a"]),
    ],
)
def test_what_blinds_an_expression(expr: str, present: list[str], missing: list[str]) -> None:
    assert _missing(expr, *present) == missing


@pytest.mark.parametrize(
    ("expr", "left"),
    [
        ("a > 1", "a"),
        ("1 < a", "a"),
        ("a > time() - 60", "a"),
        ("(a > 1) or (b == 0)", "(a) or (b)"),
        ("a > 1 and on (i) b < 2", "a and on (i) b"),
        ("a unless a offset 10m", "a"),
        ("absent(a)", "vector(1)"),
        ("absent(a > 1) or b > 0", "vector(1) or b"),
        ("a > bool 1", "a > bool 1"),
        ("a > on (i) group_left () b", "(a) > bool on (i) group_left () (b)"),
        ("a > 2 * b", "(a) > bool (2 * b)"),
        ("sum(a > 1) > 2", "sum(a)"),
    ],
)
def test_an_alert_without_its_conditions(expr: str, left: str) -> None:
    assert unconditional(parsed(expr)).prettify() == promql_parser.parse(left).prettify()


RECORDED = {
    "llm:x": [Recording("llm:x", "sum(a)", "vllm"), Recording("llm:x", "sum(b)", "sglang")],
    "llm:y": [Recording("llm:y", "c")],
}


@pytest.mark.parametrize(
    ("expr", "reads"),
    [
        ("llm:x", ["a", "b"]),
        ('llm:x{producer="sglang"}', ["b"]),
        ('llm:x{producer!="sglang"}', ["a"]),
        ('llm:x{instance="i"}', ["a", "b"]),
        ("llm:y / d", ["c", "d"]),
        ("avg_over_time(llm:y[1d] offset 1h)", ["c"]),
        ("llm:y offset 1h", ["c"]),
    ],
)
def test_a_recording_that_is_not_there_is_read_through(expr: str, reads: list[str]) -> None:
    node = inlined(parsed(expr), RECORDED, lambda _: False)
    assert [str(one) for one in selections(node)] == reads
    promql_parser.parse(node.prettify())


def test_a_recording_that_is_there_is_read_itself() -> None:
    assert [one.name for one in selections(inlined(parsed("llm:x > 1"), RECORDED, lambda _: True))] == [
        "llm:x"
    ]


def test_look_back_and_offset_of_an_inlined_recording_are_kept() -> None:
    said = inlined(parsed("avg_over_time(llm:y[1d] offset 1h)"), RECORDED, lambda _: False).prettify()
    assert "".join(said.split()) == "avg_over_time(((c))[1d:5m]offset1h)"


def test_matchers_see_an_absent_label_as_empty() -> None:
    assert matches(Matcher("server", "=", ""), "")
    assert matches(Matcher("server", "!~", "a|b"), "")
    assert not matches(Matcher("server", "=~", "a|b"), "ab")
    assert not matches(Matcher("server", "!=", ""), "")


@pytest.mark.parametrize("wanted", expectations(), ids=lambda one: f"{one.home}: {one.name}")
def test_whatever_ships_is_the_same_on_one_line(wanted: Expectation) -> None:
    for query in wanted.queries:
        for node in (parsed(query), unconditional(parsed(query))):
            assert "\n" not in text(node)
            assert promql_parser.parse(text(node)).prettify() == node.prettify()


def test_what_is_no_promql_is_one_line() -> None:
    with pytest.raises(DiagError, match="no PromQL: 'sum by'"):
        parsed("sum by")
