"""Reads a dashboard's JSON: its panels and their queries, with the variables filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from diag.assets.queries import Selection, parsed, selections

__all__ = ["Dashboard", "Panel", "dashboard"]

# What Grafana puts in for a panel over an hour at a 15 s scrape interval, roughly.
_BUILT_IN = {"__rate_interval": "5m", "__interval": "1m", "__range": "1h", "__range_s": "3600"}
_VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)")
# A variable that is set to "All"; it must match a label that is absent, too.
_ALL = ".*"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel that queries: title and queries as PromQL without variables."""

    title: str
    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard: fixed uid, title, and its panels from top to bottom; rows are left out."""

    uid: str
    title: str
    panels: tuple[Panel, ...]
    rows: tuple[str, ...] = ()

    def selections(self) -> tuple[Selection, ...]:
        """What its panels read, each once."""
        every = [one for panel in self.panels for query in panel.queries for one in selections(parsed(query))]
        return tuple(dict.fromkeys(every))


def dashboard(document: Mapping[str, Any]) -> Dashboard:
    """The dashboard in ``document``, Grafana's JSON model with panels in a flat or a nested list."""
    variables = dict(_variables(document))
    panels = list(_flat(document.get("panels", [])))
    return Dashboard(
        uid=str(document.get("uid", "")),
        title=str(document.get("title", "")),
        panels=tuple(
            Panel(str(panel.get("title", "")), queries)
            for panel in panels
            if panel.get("type") != "row" and (queries := tuple(_queries(panel, variables)))
        ),
        rows=tuple(str(panel.get("title", "")) for panel in panels if panel.get("type") == "row"),
    )


def _flat(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield panel
        yield from _flat(panel.get("panels") or [])


def _variables(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in (document.get("templating") or {}).get("list", []):
        if one.get("type") not in ("datasource", None):
            yield str(one.get("name")), str(one.get("allValue") or _ALL)


def _queries(panel: Mapping[str, Any], variables: Mapping[str, str]) -> Iterator[str]:
    for target in panel.get("targets") or []:
        expr = str(target.get("expr") or "").strip()
        if expr:
            yield _VARIABLE.sub(lambda found: _value(found, variables), expr)


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    name = found.group(1) or found.group(2)
    # "$1" and its like are label_replace's, not Grafana's.
    return _BUILT_IN.get(name) or variables.get(name, found.group() if name.isdigit() else _ALL)
