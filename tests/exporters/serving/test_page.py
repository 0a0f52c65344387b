"""The text, held against prometheus_client's writer and parsers and against promtool."""

from __future__ import annotations

import gzip
import math
import os
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import core, exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from diag_exporter.families import Family, Histogram, Row
from diag_exporter.page import OWN_FAMILIES, compressed, own_rows, render
from diag_exporter.snapshot import CollectorHealth, Snapshot

FAMILIES = (
    Family("llmdiag_a_celsius", "gauge", 'Heat with "quotes", a \\ and\na new line.', ("uuid", "gpu")),
    Family("llmdiag_b_total", "counter", "Events.", ("kind",)),
    Family("llmdiag_c_info", "info", "Identity.", ("name",)),
    Family("llmdiag_d_seconds", "histogram", "Seconds.", ("model",)),
    Family("llmdiag_e_bytes", "gauge", "No labels."),
)

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_number = st.floats(allow_nan=False, allow_infinity=False, width=64)
_count = st.floats(0, 1e18)


@st.composite
def _histograms(draw):
    bounds = tuple(sorted(draw(st.sets(st.floats(0.001, 1e6), min_size=1, max_size=5))))
    counts = tuple(draw(st.lists(st.integers(0, 1000), min_size=len(bounds) + 1, max_size=len(bounds) + 1)))
    return Histogram(bounds, counts, draw(_count))


def _rows(labels, values):
    keys = st.tuples(*[_text] * labels)
    return st.dictionaries(keys, values, max_size=4).map(lambda d: [Row(k, v) for k, v in d.items()])


_pages = st.fixed_dictionaries(
    {
        "llmdiag_a_celsius": _rows(2, _number),
        "llmdiag_b_total": _rows(1, _count),
        "llmdiag_c_info": _rows(1, st.just(1.0)),
        "llmdiag_d_seconds": _rows(1, _histograms()),
        "llmdiag_e_bytes": _rows(0, _number),
    }
)


class _Registry:
    """The same rows as metric objects of the client library."""

    def __init__(self, rows):
        self.rows = rows

    def collect(self):
        for family in FAMILIES:
            if self.rows[family.name]:
                yield self._metric(family, self.rows[family.name])

    @staticmethod
    def _metric(family, rows):
        name, text, labels = family.name, family.help, list(family.labels)
        if family.kind == "histogram":
            metric = core.HistogramMetricFamily(name, text, labels=labels)
            for row in rows:
                seen, buckets = 0, []
                for bound, count in zip((*row.value.bounds, math.inf), row.value.counts, strict=True):
                    seen += count
                    buckets.append((repr(bound) if bound != math.inf else "+Inf", seen))
                metric.add_metric(row.labels, buckets, row.value.total)
            return metric
        if family.kind == "info":
            info = core.InfoMetricFamily(name.removesuffix("_info"), text, labels=[])
            for row in rows:
                info.add_metric([], dict(zip(labels, row.labels, strict=True)))
            return info
        kinds = {"gauge": core.GaugeMetricFamily, "counter": core.CounterMetricFamily}
        plain = kinds[family.kind](name, text, labels=labels)
        for row in rows:
            plain.add_metric(row.labels, row.value)
        return plain


def _known(families):
    # One reader calls an info metric's family by its full name, the other doesn't.
    return {
        (sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in families
        for sample in family.samples
    }


def _headings(page):
    # A label may hold any other line end; "\n" is the only one that is escaped.
    return [line for line in page.split("\n") if line.startswith("# ")]


@settings(max_examples=40)
@given(_pages)
def test_text_says_what_the_client_library_would(rows):
    ours = render(FAMILIES, rows)
    theirs = exposition.generate_latest(_Registry(rows)).decode()
    assert _known(parse_text(ours)) == _known(parse_text(theirs))
    assert _headings(ours) == _headings(theirs)


@settings(max_examples=40)
@given(_pages)
def test_openmetrics_says_what_the_client_library_would(rows):
    ours = render(FAMILIES, rows, open_metrics=True)
    theirs = openmetrics.generate_latest(_Registry(rows)).decode()
    assert _known(parse_openmetrics(ours)) == _known(parse_openmetrics(theirs))
    assert ours.endswith("# EOF\n")


def test_a_histogram_is_cumulative_and_ends_in_infinity():
    rows = {"llmdiag_d_seconds": [Row(("m",), Histogram((0.5, 1.0), (3, 0, 4), 12.5))]}
    assert render(FAMILIES, rows).splitlines()[2:] == [
        'llmdiag_d_seconds_bucket{model="m",le="0.5"} 3.0',
        'llmdiag_d_seconds_bucket{model="m",le="1.0"} 3.0',
        'llmdiag_d_seconds_bucket{model="m",le="+Inf"} 7.0',
        'llmdiag_d_seconds_count{model="m"} 7.0',
        'llmdiag_d_seconds_sum{model="m"} 12.5',
    ]


def test_a_family_without_rows_is_not_there():
    assert "llmdiag_a_celsius" not in render(FAMILIES, {"llmdiag_a_celsius": []})
    assert render(FAMILIES, {}) == ""


def test_compression_gives_the_same_page_and_the_same_bytes_each_time():
    page = render(FAMILIES, {"llmdiag_e_bytes": [Row((), 1.0)]}).encode() * 50
    assert gzip.decompress(compressed(page)) == page
    assert compressed(page) == compressed(page)
    assert len(compressed(page)) < len(page) / 5


def _snapshot(**health):
    return Snapshot(1.8e9, health={"c": CollectorHealth(True, 0.25, 1.8e9, 2, **health)}, age=3.0)


def test_the_exporter_tells_of_itself():
    rows = own_rows({"gpu": _snapshot()}, "9.9")
    assert rows["llmdiag_exporter_build_info"][0].labels[0] == "9.9"
    assert rows["llmdiag_up"] == [Row((), 1.0)]
    assert rows["llmdiag_snapshot_age_seconds"] == [Row(("gpu",), 3.0)]
    assert rows["llmdiag_collector_duration_seconds"] == [Row(("c",), 0.25)]
    assert rows["llmdiag_collector_failures_total"] == [Row(("c",), 2.0)]
    assert rows["llmdiag_collector_last_success_timestamp_seconds"] == [Row(("c",), 1.8e9)]
    assert set(rows) == {family.name for family in OWN_FAMILIES}


def test_up_is_0_while_a_call_hangs_and_before_the_first_pass():
    assert own_rows({"gpu": _snapshot(wedged=True)}, "1")["llmdiag_up"] == [Row((), 0.0)]
    before = Snapshot(1.8e9, health={"c": CollectorHealth(False, 0.0, None, 0)})
    rows = own_rows({"gpu": before}, "1")
    assert rows["llmdiag_up"] == [Row((), 0.0)]
    assert rows["llmdiag_snapshot_age_seconds"] == []
    assert rows["llmdiag_collector_last_success_timestamp_seconds"] == []


@pytest.mark.server
def test_promtool_has_nothing_to_say():
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("CI") == "true":
            pytest.fail("promtool is not installed")
        pytest.skip("promtool is not installed")
    page = render(OWN_FAMILIES, own_rows({"gpu": _snapshot()}, "1"))
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
