"""Pages of every dialect, and pages with broken lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from diag.sources.exposition import BadLines, Sample, looks_like_page, samples


def _read(text: str, *, om: bool = False) -> tuple[list[Sample], BadLines]:
    bad = BadLines()
    return list(samples(text.splitlines(), "page", bad, openmetrics=om)), bad


@pytest.fixture(scope="module")
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("asked", "h", ["path"], registry=registry).labels('a"b\\c\nd,}{=#').inc(3)
    Gauge("level", "h", registry=registry).set(float("-inf"))
    Histogram("wait_seconds", "h", buckets=(0.1, 1), registry=registry).observe(0.5, exemplar={"trace": "x"})
    return registry


def test_both_dialects_of_the_reference_client_read_alike(registry: CollectorRegistry) -> None:
    plain, bad_plain = _read(generate_latest(registry).decode())
    openmetrics_page = openmetrics.generate_latest(registry)
    rich, bad_rich = _read(openmetrics_page.decode(), om=True)
    assert bad_plain.count == bad_rich.count == 0
    # The dialects differ in the order of families alone.
    assert sorted(map(repr, plain)) == sorted(map(repr, rich))
    assert Sample("asked_total", {"path": 'a"b\\c\nd,}{=#'}, 3.0, None) in plain
    assert Sample("wait_seconds_bucket", {"le": "+Inf"}, 1.0, None) in rich


def test_recorded_pages_read_as_the_reference_parser_reads_them(checkout: Path) -> None:
    pages = sorted((checkout / "tests" / "captures").glob("*.prom"))
    assert len(pages) > 5
    for path in pages:
        text = path.read_text()
        try:
            families = list(text_string_to_metric_families(text))
        except ValueError:
            continue
        # It adds `_total` to counters that lack it; names are taken as they stand here.
        expected = [
            repr((one.name.removesuffix("_total"), one.labels, float(one.value)))
            for family in families
            for one in family.samples
        ]
        found, bad = _read(text)
        assert bad.count == 0, path.name
        told = [repr((one.name.removesuffix("_total"), one.labels, one.value)) for one in found]
        assert sorted(told) == sorted(expected), path.name


def test_times_are_milliseconds_in_one_dialect_and_seconds_in_the_other() -> None:
    assert _read("up 1 1795990732666")[0][0].time == 1795990732.666
    assert _read("up 1 1795990732.666", om=True)[0][0].time == 1795990732.666


def test_bad_lines_are_counted_and_named_and_the_rest_is_read() -> None:
    text = "a 1\nb{x=\"1 2\nc one\n}\nd 1 2 3\ne{y='1'} 2\nf 2\ng 1_000\n"
    found, bad = _read(text)
    assert [one.name for one in found] == ["a", "f"]
    assert bad.count == 6
    assert bad.note().startswith(
        "6 unreadable metrics lines left out: page:2 (labels do not end), page:3 (value"
    )
    assert bad.note().endswith("…")


def test_quoted_names_of_newer_servers_are_read() -> None:
    found, bad = _read('{"my.metric", "a.b"="c"} 4')
    assert bad.count == 0
    assert found == [Sample("my.metric", {"a.b": "c"}, 4.0, None)]


def test_an_openmetrics_page_ends_where_it_says() -> None:
    assert [one.name for one in _read("a 1\n# EOF\nb 2", om=True)[0]] == ["a"]


@pytest.mark.parametrize(
    ("text", "is_page"),
    [
        ("# HELP a b\n", True), ("up 1\n", True), ("<html>", False), ("", False),
        ('{"status":"success"}', False),
        ("not found", False), ("# a comment\nup{a=\"b\"} 1", True),
    ],
)  # fmt: skip
def test_pages_are_told_from_other_answers(text: str, is_page: bool) -> None:
    assert looks_like_page(text) is is_page


@given(st.lists(st.text(max_size=60), max_size=20))
def test_any_text_is_survived_and_every_line_accounted_for(lines: list[str]) -> None:
    lines = [one.replace("\n", " ") for one in lines]
    bad = BadLines()
    found = list(samples(lines, "page", bad))
    passed_over = sum(1 for one in lines if one.startswith("#") or not one.strip())
    assert len(found) + bad.count + passed_over == len(lines)
