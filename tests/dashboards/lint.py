"""The conventions of the dashboards, as complaints about their JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

__all__ = ["UNITS", "complaints"]

UNITS = frozenset(
    {"s", "percentunit", "short", "bytes", "Bps", "celsius", "watt", "reqps", "cps", "count:tok/s", "none"}
)
"""Units of Grafana that the boards use; an unknown one would silently be shown as a suffix."""

_VARIABLES = ("datasource", "cluster", "job", "instance", "model")
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_FIXED_WINDOW = re.compile(r"(?:rate|_over_time)\([^()]*\[\d+[smhd]\]")
_COLUMNS = 24
Model = Mapping[str, Any]


def complaints(board: Model, uids: frozenset[str]) -> list[str]:
    """What is wrong with ``board``; ``uids`` are all boards that a link may lead to."""
    found = [*_head(board), *_annotations(board), *_layout(board)]
    names = {variable["name"] for variable in board["templating"]["list"]}
    for panel in board["panels"]:
        if panel["type"] != "row":
            where = f"{board['uid']}: {panel.get('title', panel['id'])!r}"
            found += [f"{where}: {text}" for text in _panel(panel, names, uids)]
    return found


def _head(board: Model) -> Iterator[str]:
    name = board["uid"]
    if board.get("editable") is not False:
        yield f"{name}: can be edited"
    if board.get("graphTooltip") != 1:
        yield f"{name}: no shared crosshair"
    if board.get("id") is not None:
        yield f"{name}: has a numeric id"
    if "llm-diag" not in board["tags"] or not board["description"].endswith("."):
        yield f"{name}: tag or description is missing"
    if not any(
        link["type"] == "dashboards" and link["keepTime"] and link["includeVars"] for link in board["links"]
    ):
        yield f"{name}: no menu that keeps time and variables"
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    if tuple(variables)[: len(_VARIABLES)] != _VARIABLES:
        yield f"{name}: variables are {list(variables)}"
    for variable in variables.values():
        if variable["type"] == "query" and not (variable["includeAll"] and variable["allValue"] == ".*"):
            yield f"{name}: ${variable['name']} cannot be all"


def _annotations(board: Model) -> Iterator[str]:
    asked = [one.get("expr", "") for one in board["annotations"]["list"] if one["enable"]]
    for needed in ('ALERTS{alertstate="firing"', "llmdiag_triage_finding"):
        if not any(needed in expr for expr in asked):
            yield f"{board['uid']}: no marks from {needed}"


def _panel(panel: Model, variables: set[str], uids: frozenset[str]) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    if not panel.get("title"):
        yield "no title"
    if not panel.get("description", "").endswith("."):
        yield "no description that is a sentence"
    if defaults.get("unit") not in UNITS:
        yield f"unit {defaults.get('unit')!r} is not known"
    if panel.get("datasource") != _SOURCE:
        yield "the data source is fixed"
    if not any("/runbooks/" in link["url"] for link in panel.get("links", ())):
        yield "leads to no runbook"
    yield from _thresholds(panel)
    yield from _targets(panel, variables)
    for link in defaults.get("links", ()):
        uid = re.match(r"/d/([\w-]+)\?", link["url"])
        if uid is None or uid[1] not in uids:
            yield f"link {link['url']!r} leads nowhere"
        elif "${__url_time_range}" not in link["url"] or "${datasource:queryparam}" not in link["url"]:
            yield "a link loses time or data source"


def _thresholds(panel: Model) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    values = [step.get("value") for step in defaults["thresholds"]["steps"]]
    if values[:1] != [None] or any(value is None for value in values[1:]):
        yield "thresholds have no base"
    if 80 in values:
        yield "Grafana's default threshold of 80"
    if panel["type"] == "timeseries":
        lines = defaults["custom"]["thresholdsStyle"]["mode"] != "off"
        if lines != (len(values) > 1):
            yield "thresholds and their lines disagree"


def _targets(panel: Model, variables: set[str]) -> Iterator[str]:
    refs = [target["refId"] for target in panel["targets"]]
    if not refs or len(set(refs)) != len(refs):
        yield f"queries are called {refs}"
    for target in panel["targets"]:
        if target.get("datasource") != _SOURCE:
            yield "a query's data source is fixed"
        if not target.get("legendFormat"):
            yield "a query without a legend"
        if _FIXED_WINDOW.search(target["expr"]):
            yield f"a fixed window: {target['expr'][:80]}"
        if "$__interval" in target["expr"]:
            yield "$__interval is shorter than four scrapes"
        used = set(re.findall(r"\$([a-z]\w*)", target["expr"]))
        if used - variables:
            yield f"unknown variables {sorted(used - variables)}"
        if "cluster" not in used and "ALERTS" not in target["expr"]:
            yield "mixes clusters"


def _layout(board: Model) -> Iterator[str]:
    ids = [panel["id"] for panel in board["panels"]]
    if len(set(ids)) != len(ids):
        yield f"{board['uid']}: panel ids repeat"
    places = [(panel["title"], panel["gridPos"]) for panel in board["panels"]]
    for title, at in places:
        if at["x"] < 0 or at["w"] <= 0 or at["h"] <= 0 or at["x"] + at["w"] > _COLUMNS:
            yield f"{board['uid']}: {title!r} leaves the grid"
    for (first, a), (second, b) in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        if not (beside or above):
            yield f"{board['uid']}: {first!r} and {second!r} overlap"
