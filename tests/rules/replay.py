"""All rules over many incidents, in one real Prometheus.

Each incident gets days of its own, so that no look-back reaches into another. The recordings are evaluated
first, by range query, and their answers become blocks beside the raw samples; the alerts are asked after
that. This is what a server with the rules loaded would have stored, at the same steps.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import promql_parser
import requests

from diag.signals.frame import RawSeries
from tests.rules.rulefiles import Rule, alerts, recordings
from tests.rules.servers import binary, prometheus_on
from tests.rules.states import Episode, episodes
from tests.rules.timeline import Timeline, openmetrics

__all__ = ["APART_SECONDS", "EPOCH", "Fired", "metric_names", "raw_names", "replay", "stored"]

EPOCH = 1_700_006_400.0  # a multiple of two hours: promtool cuts its blocks there
APART_SECONDS = 3 * 86_400.0
_STEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Fired:
    """An alert's episodes in one incident; empty when it stayed silent."""

    alert: str
    timeline: Timeline
    episodes: tuple[Episode, ...]

    @property
    def before(self) -> bool:
        """Whether it fired before anything was wrong, or where nothing ever is."""
        return any(self.timeline.onset is None or one.fired < self.timeline.onset for one in self.episodes)

    @property
    def minutes(self) -> float | None:
        """How long after the onset it fired first."""
        onset = self.timeline.onset
        after = [one.fired - onset for one in self.episodes if onset is not None and one.fired >= onset]
        return min(after) / 60 if after else None

    @property
    def resolved(self) -> bool:
        """Whether every instance of it ended within the data."""
        return all(one.resolved is not None for one in self.episodes)


def metric_names(expr: str) -> frozenset[str]:
    """Every metric that an expression selects by name."""
    found: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector) and node.name:
            found.add(node.name)

    promql_parser.walk(promql_parser.parse(expr), visit)
    return frozenset(found)


@cache
def raw_names() -> frozenset[str]:
    """Every metric that an alert reads, itself or by way of a recording."""
    read = {name for rule in (*alerts(), *_used()) for name in metric_names(rule.expr)}
    return frozenset(read - {rule.record for rule in recordings()})


def replay(timelines: Sequence[Timeline], folder: Path) -> list[Fired]:
    """Every alert on every timeline, in order."""
    data = folder / "data"
    for number, timeline in enumerate(timelines):
        stored(data, folder / f"raw{number}.om", timeline.series)
    used = _used()
    with prometheus_on(data) as url:
        derived = [
            [series for rule in used for series in _recorded(url, rule, timeline)] for timeline in timelines
        ]
    for number, series in enumerate(derived):
        if series:
            stored(data, folder / f"recorded{number}.om", series)
    with prometheus_on(data) as url:
        return [_judged(url, rule, timeline) for timeline in timelines for rule in alerts()]


def _used() -> list[Rule]:
    """The recordings that an alert reads; the others are for dashboards."""
    read = {name for rule in alerts() for name in metric_names(rule.expr)}
    return [rule for rule in recordings() if rule.record in read]


def stored(data: Path, text: Path, series: Iterable[RawSeries]) -> None:
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    text.unlink()


def _moments(timeline: Timeline) -> list[float]:
    return list(np.arange(timeline.start, timeline.end + 1, _STEP_SECONDS))


def _range(url: str, expr: str, timeline: Timeline) -> list[dict[str, Any]]:
    moments = _moments(timeline)
    answer = requests.post(
        f"{url}/api/v1/query_range",
        data={"query": expr, "start": moments[0], "end": moments[-1], "step": _STEP_SECONDS},
        timeout=60,
    )
    body = answer.json()
    assert body["status"] == "success", f"{body.get('error')}: {expr}"
    found: list[dict[str, Any]] = body["data"]["result"]
    return found


def _recorded(url: str, rule: Rule, timeline: Timeline) -> Iterator[RawSeries]:
    for one in _range(url, rule.expr, timeline):
        labels: Mapping[str, str] = {**one["metric"], **rule.labels, "__name__": rule.record}
        times, values = zip(*one["values"], strict=True)
        yield RawSeries(labels, np.array(times, dtype=np.float64), np.array([float(v) for v in values]))


def _judged(url: str, rule: Rule, timeline: Timeline) -> Fired:
    answer = [
        (one["metric"], frozenset(float(moment) for moment, _ in one["values"]))
        for one in _range(url, rule.expr, timeline)
    ]
    found = episodes(
        answer,
        _moments(timeline),
        for_seconds=rule.for_seconds,
        keep_firing_seconds=rule.keep_firing_seconds,
    )
    return Fired(rule.alert, timeline, tuple(found))
