"""Every query of every runbook parses, names only metrics that are, and returns rows on incident data."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import requests

from diag.accuracy.corpus import make
from diag.assets.queries import parsed, selections
from diag.engines import ENGINES, Definition
from diag.signals.algebra import Select, selects
from diag.signals.frame import RawSeries
from tests.rules.servers import binary, prometheus_on
from tests.rules.timeline import moved, openmetrics
from tests.runbooks.reading import FOLDER, PAGES, Page, expressions

QUERIES = [(id, expr) for id in PAGES for expr in expressions(Page.of(id).text)]

# (scenario, seed): what watches the cards differs by seed. vLLM with diag-exporter, node and InfiniBand; vLLM
# that speculates, with DCGM; vLLM with nvidia_gpu_exporter.
INCIDENTS = (("fabric_flap", 10), ("spec_decode_collapse", 7), ("noisy_neighbour", 1))
# Pages that our exporter really served, since the simulator has no session feeds.
CAPTURED = ("llmdiag_sessions.prom", "llmdiag_demo.prom")
EPOCH = 1_700_006_400.0  # a multiple of two hours: promtool cuts its blocks there
APART_SECONDS = 7200.0

_SGLANG = "no SGLang incident is stored: simulating one takes as long as the three others"
UNHELD = {
    "ALERTS": "written by a server that evaluates the rules; the live chain's test shows it",
    "llmdiag_active_session_context_ratio_bucket": "the captured page knew no maximum length",
    "llmdiag_engine_aborted_request_lines_total": "no engine log was followed when the page was captured",
    "llmdiag_gpu_nvlink_errors_total": "the cards of these incidents have no NVLink",
    "llmdiag_gpu_nvlink_links": "the cards of these incidents have no NVLink",
    "llmdiag_gpu_nvlink_links_active": "the cards of these incidents have no NVLink",
    "llmdiag_engine_bind_failures_total": "no engine log was followed when the page was captured",
    "llmdiag_tenant_in_flight_requests": "no proxy ran when the page was captured",
    "sglang:cuda_graph_passes_total": _SGLANG,
    "sglang:num_grammar_queue_reqs": _SGLANG,
    "sglang:num_transfer_failed_reqs_total": _SGLANG,
    "sglang:spec_accept_length": _SGLANG,
}
"""Metrics that no stored incident holds, and why."""

QUIET = {
    ("failing_requests", 'sum(rate(http_requests_total{status="5xx"}'): "no request fails in these incidents",
}
"""Queries that rightly select nothing here (page, beginning), and why."""


@cache
def known_metrics() -> frozenset[str]:
    """Every metric that an engine file reads or that our exporter documents."""
    chosen: list[Select] = []
    for engine in ENGINES:
        for definition in engine.signals.values():
            if isinstance(definition, Definition):
                chosen += selects(definition.expr)
        chosen += [*engine.numbers.values(), engine.probe, *([engine.info] if engine.info else [])]
    names = {name for one in chosen for name in one.names}
    exporter = (FOLDER.parent / "docs" / "exporter.md").read_text(encoding="utf-8")
    own = set(re.findall(r"^\| `(llmdiag_\w+)`", exporter, re.MULTILINE))
    return frozenset(names | own | {f"{name}_bucket" for name in names | own} | {"ALERTS"})


@pytest.mark.parametrize("id", PAGES)
def test_queries_parse_and_name_only_known_metrics(id: str) -> None:
    for expr in expressions(Page.of(id).text):
        unknown = {one.name for one in selections(parsed(expr)) if one.name} - known_metrics()
        assert unknown == set(), expr


def test_there_is_something_to_ask() -> None:
    assert len(QUERIES) > 200
    asked = {one.name for _, expr in QUERIES for one in selections(parsed(expr))}
    assert set(UNHELD) <= asked
    for id, start in QUIET:
        assert [expr for page, expr in QUERIES if page == id and expr.startswith(start)]


@dataclass(frozen=True)
class Store:
    """A Prometheus with several incidents, one after the other; ``spans`` are theirs (unix seconds)."""

    url: str
    spans: tuple[tuple[float, float], ...]

    def rows(self, expr: str) -> int:
        """The most series that ``expr`` returns over any of the incidents."""
        most = 0
        for start, end in self.spans:
            asked = {"query": expr, "start": str(start), "end": str(end), "step": "300"}
            body = requests.post(f"{self.url}/api/v1/query_range", data=asked, timeout=20).json()
            assert body["status"] == "success", f"{body.get('error')}: {expr}"
            most = max(most, len(body["data"]["result"]))
            if most:
                break
        return most


def _captured(name: str, start: float) -> Iterator[RawSeries]:
    """A page as if it had been scraped for half an hour, its counters standing still."""
    times = start + np.arange(0.0, 1801.0, 60.0)
    seen: set[str] = set()
    for line in (FOLDER.parent / "tests" / "captures" / name).read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"(llmdiag_\w+)(?:\{(.*)\})? (\S+)", line)
        if found and found[0].rpartition(" ")[0] not in seen:
            seen.add(found[0].rpartition(" ")[0])
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2] or ""))
            yield RawSeries(
                {"__name__": found[1], "job": "llmdiag", "instance": name, **labels},
                times,
                np.full(times.size, float(found[3])),
            )


def _write(data: Path, series: Iterable[RawSeries]) -> None:
    text = data.parent / "samples.om"
    with text.open("w") as out:
        out.writelines(openmetrics(series))
    command = [
        binary("promtool"),
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        "--quiet",
        str(text),
        str(data),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The incidents, of each only the metrics that a runbook asks for."""
    data = tmp_path_factory.mktemp("runbooks") / "data"
    asked = frozenset(one.name for _, expr in QUERIES for one in selections(parsed(expr)))
    spans: list[tuple[float, float]] = []
    start = EPOCH
    for scenario, seed in INCIDENTS:
        timeline = moved(make("develop", scenario, seed, severity=1.0).bundle, start, asked)
        # Every other scrape: half a minute apart, which the shortest look-back (1m) still sees.
        _write(data, [RawSeries(one.labels, one.times[::2], one.values[::2]) for one in timeline.series])
        spans.append((timeline.start + 600, timeline.end))
        start += APART_SECONDS
    _write(data, [one for name in CAPTURED for one in _captured(name, start)])
    spans.append((start + 600, start + 1800))
    with prometheus_on(data) as url:
        yield Store(url, tuple(spans))


@pytest.mark.server
@pytest.mark.parametrize("id", PAGES)
def test_queries_return_rows_on_incident_data(id: str, store: Store) -> None:
    for expr in expressions(Page.of(id).text):
        absent = {one.name for one in selections(parsed(expr))} & set(UNHELD)
        quiet = any(id == page and expr.startswith(start) for page, start in QUIET)
        assert bool(store.rows(expr)) is not (bool(absent) or quiet), f"{id}: {expr}"
