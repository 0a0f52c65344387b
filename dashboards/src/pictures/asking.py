"""Asks a store what a panel of a dashboard's JSON would ask, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import requests
from numpy.typing import NDArray

from dashboards.src.variables import VARIABLES
from diag.errors import DiagError

__all__ = ["Line", "Span", "answers", "filled", "metric_names", "rate_interval"]

_CHOSEN = tuple(one.name for one in VARIABLES)
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True)
class Span:
    """What is looked at: unix seconds, a step, and how often targets were scraped, in seconds."""

    start: float
    end: float
    step: float
    scrape: float


@dataclass(frozen=True, slots=True)
class Line:
    """One series of an answer: labels, its text in the legend, unix seconds, values."""

    labels: Mapping[str, str]
    legend: str
    times: NDArray[np.float64]
    values: NDArray[np.float64]


def filled(expr: str, window: str = "60s", chosen: Mapping[str, str] | None = None) -> str:
    """``expr`` with Grafana's variables put in: all instances, hosts and models unless ``chosen`` says. What
    is no variable stays as it is, as in Grafana (``$1`` of a ``label_replace``)."""
    values = {"__rate_interval": window, **dict.fromkeys(_CHOSEN, ".*"), **(chosen or {})}
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[2], found[0]), expr)


def metric_names(expr: str) -> frozenset[str]:
    """Everything in ``expr`` that could be a metric's name, and a few words that are none."""
    return frozenset(_NAME.findall(re.sub(r'"[^"]*"', "", expr)))


def answers(url: str, target: Mapping[str, Any], over: Span) -> list[Line]:
    """What the query ``target`` of a panel answers over a span; at its end only where it is instant.

    Raises ``DiagError`` with the store's own words where it refuses the query."""
    least = float(target["interval"].removesuffix("s")) if target.get("interval") else 0.0
    step = max(over.step, least)
    expr = filled(target["expr"], rate_interval(step, least or over.scrape))
    asked = {"query": expr}
    if target.get("instant"):
        way, asked["time"] = "query", f"{over.end:.3f}"
    else:
        way = "query_range"
        asked |= {"start": f"{over.start:.3f}", "end": f"{over.end:.3f}", "step": f"{step:.3f}"}
    answer = requests.post(f"{url}/api/v1/{way}", asked, timeout=60)
    body = answer.json()
    if body.get("status") != "success":
        raise DiagError(f"the store refuses {expr}: {body.get('error', answer.status_code)}")
    return [_line(one, target["legendFormat"]) for one in body["data"]["result"]]


def rate_interval(step: float, scrape: float) -> str:
    """``$__rate_interval`` as Grafana documents it: the larger of step plus scrape interval and four scrape
    intervals, where a query's own minimum step counts as the scrape interval."""
    return f"{round(max(step + scrape, 4 * scrape))}s"


def _line(one: Mapping[str, Any], legend: str) -> Line:
    pairs = one.get("values") or [one["value"]]
    text = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: one["metric"].get(found[1], ""), legend)
    return Line(
        one["metric"],
        text.strip(),
        np.array([float(moment) for moment, _ in pairs]),
        np.array([float(value) for _, value in pairs]),
    )
