"""Every query: PromQL, of known metrics, answered by a real Prometheus that holds incidents."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import requests
import yaml

from dashboards.src.boards import BOARDS
from dashboards.src.model import Query
from dashboards.src.pictures.asking import answers, filled, rate_interval
from diag.assets.queries import parsed, selections
from diag.engines import ENGINES, Definition
from diag.errors import DiagError
from diag.signals.algebra import selects, spellings
from tests.dashboards.conftest import CHECKOUT, Held

Model = dict[str, Any]
CAPTURES = sorted((CHECKOUT / "tests" / "captures").glob("*"))
# The store's own, written by rules and by the webhook; absent from every page.
WRITTEN_BY_STORE = {"ALERTS", "up", "llmdiag_triage_finding"}
# Read in Mooncake's sources; the recorded page is a client's view and shows three gauges alone.
READ_IN_SOURCES = {"master_total_capacity_bytes"}


def _vocabulary() -> set[str]:
    """Names that engine files read, that a recorded page shows, or that our exporter's reference lists."""
    defined = [
        name
        for engine in ENGINES
        for entry in engine.signals.values()
        if isinstance(entry, Definition)
        for part in selects(entry.expr)
        for name in part.names
    ]
    defined += [name for engine in ENGINES for name in engine.probe.names]
    known = {spelling for name in defined for spelling in spellings(name)}
    for path in CAPTURES:
        known |= set(re.findall(r"^([a-zA-Z_:][\w:]*)", path.read_text(encoding="utf-8"), re.MULTILINE))
    reference = (CHECKOUT / "docs" / "exporter.md").read_text(encoding="utf-8")
    for name, kind in re.findall(r"^\| `(llmdiag_\w+)`[^|]*\| (\w+) \|", reference, re.MULTILINE):
        known |= {f"{name}{end}" for end in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
    for name in [name for name in known if name.startswith(("vllm:", "sglang:"))]:
        known |= {*spellings(name), f"{name}_bucket", f"{name}_sum", f"{name}_count"}
        known |= {spelt for end in ("_bucket", "_sum", "_count") for spelt in spellings(name + end)}
    return known | WRITTEN_BY_STORE | READ_IN_SOURCES


def _queries() -> list[tuple[str, str, Query]]:
    return [
        (board.uid, panel.title, query)
        for board in BOARDS
        for panel in board.panels
        for query in panel.queries
    ]


def test_each_is_promql_of_known_metrics() -> None:
    known = _vocabulary()
    read: set[str] = set()
    for _, _, query in _queries():
        read |= {one.name for one in selections(parsed(filled(query.expr)))}
    assert len(read) > 100
    assert read - known == set()


def test_a_renamed_metric_and_a_broken_query_would_be_noticed() -> None:
    known = _vocabulary()
    assert "vllm:num_preemptions_total" in known
    assert "vllm:num_preemptions_totals" not in known
    assert "vllm:kv_cache_usage_percent" not in known
    with pytest.raises(DiagError, match="no PromQL"):
        parsed(filled('sum by (instance (rate(up{cluster=~"$cluster"}[$__rate_interval]))'))


def test_variables_are_filled_as_grafana_fills_them() -> None:
    assert filled('x{a=~"$job",b="${model:raw}"}[$__rate_interval]') == 'x{a=~".*",b=".*"}[60s]'
    assert filled('label_replace(x, "a", "$1", "b", "(.+)")').count("$1") == 1
    assert filled("$instance", chosen={"instance": "a|b"}) == "a|b"
    assert rate_interval(15, 15) == "60s"
    assert rate_interval(120, 15) == "135s"


@pytest.mark.server
def test_each_query_has_rows_on_some_incident_or_says_why_not(held: Held) -> None:
    targets = _targets()
    empty = []
    for (uid, title, query), target in zip(_queries(), targets, strict=True):
        assert target["expr"] == query.expr
        filled_somewhere = any(_has_rows(held.url, target, stage.span(120)) for stage in held.stages)
        if not filled_somewhere and not query.absent:
            empty.append(f"{uid}: {title!r} ({query.producer}): no rows")
        if filled_somewhere and query.absent:
            empty.append(f"{uid}: {title!r} ({query.producer}) has rows, though {query.absent!r}")
    assert not empty, "\n".join(empty)


def _targets() -> list[Model]:
    found = []
    for board in BOARDS:
        model = json.loads((CHECKOUT / "dashboards" / f"{board.uid}.json").read_text(encoding="utf-8"))
        found += [target for panel in model["panels"] for target in panel.get("targets", ())]
    return found


def _has_rows(url: str, target: Model, span: Any) -> bool:
    return any(np.isfinite(one.values).any() for one in answers(url, target, span))


@pytest.mark.server
def test_marks_and_variables_are_answered(held: Held, committed: dict[str, Model]) -> None:
    board = committed["llmdiag-incident"]
    stage = next(one for one in held.stages if one.stage.name == "fabric_flap")
    for mark in board["annotations"]["list"]:
        if "expr" in mark:
            asked = {"query": filled(mark["expr"]), "time": f"{stage.end}"}
            assert requests.get(f"{held.url}/api/v1/query", asked, timeout=10).json()["status"] == "success"
    offered = {}
    for variable in board["templating"]["list"]:
        found = re.fullmatch(
            r"label_values\((.+), (\w+)\)", variable.get("query", "") if variable["type"] == "query" else ""
        )
        if found:
            where = {"match[]": filled(found[1]), "start": f"{stage.start}", "end": f"{stage.end}"}
            answer = requests.get(f"{held.url}/api/v1/label/{found[2]}/values", where, timeout=10).json()
            offered[variable["name"]] = answer["data"]
    assert offered["cluster"] == []
    assert offered["job"] == ["vllm"]
    assert offered["instance"] == sorted(offered["instance"])
    assert offered["instance"]
    assert all(":8000" in name for name in offered["instance"])
    assert len(offered["model"]) == 1
    assert {name.rpartition(":")[2] for name in offered["host"]} == {"9100", "9877"}


@pytest.mark.server
def test_one_instance_can_be_chosen(held: Held, committed: dict[str, Model]) -> None:
    stage = next(one for one in held.stages if one.stage.name == "fabric_flap")
    panel = next(
        one for one in committed["llmdiag-engine"]["panels"] if one["title"] == "Time to first token"
    )
    expr = filled(panel["targets"][0]["expr"], "120s", {"instance": "vllm-1:8000"})
    asked = {"query": expr, "time": f"{stage.end}"}
    rows = requests.get(f"{held.url}/api/v1/query", asked, timeout=10).json()["data"]["result"]
    assert [row["metric"]["instance"] for row in rows] == ["vllm-1:8000"]


@pytest.mark.server
def test_a_refused_query_is_told_with_the_stores_words(held: Held) -> None:
    target = {"expr": "sum by (x) (1", "legendFormat": "x"}
    with pytest.raises(DiagError, match="the store refuses"):
        answers(held.url, target, held.stages[0].span())


def test_provisioning_names_the_folder_and_lets_nobody_edit() -> None:
    folder = CHECKOUT / "dashboards" / "provisioning"
    boards = yaml.safe_load((folder / "dashboards" / "llmdiag.yaml").read_text(encoding="utf-8"))
    (provider,) = boards["providers"]
    assert (boards["apiVersion"], provider["type"], provider["allowUiUpdates"]) == (1, "file", False)
    sources = yaml.safe_load((folder / "datasources" / "llmdiag.yaml").read_text(encoding="utf-8"))
    (source,) = sources["datasources"]
    assert (source["type"], source["access"], source["jsonData"]["timeInterval"]) == (
        "prometheus",
        "proxy",
        "15s",
    )
