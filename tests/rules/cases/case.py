"""One promtool test as a row: what is scraped, when an alert is silent, when it fires, with what words.

Everything expected is written by hand in the rows, from the page's numbers; nothing is computed from a rule.
What a row does not say is the same for all: one sample a minute, two external labels, how links are built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

__all__ = ["Case", "Fires", "Told", "counter", "gauge", "silent"]

DIAG, GRAFANA, VERSION = "https://diag.test", "https://grafana.test", "0.1.0"
_VARIABLES = {"instance": "instance", "job": "job", "model_name": "model", "cluster": "cluster"}


@dataclass(frozen=True, slots=True)
class Told:
    """What one alert says whatever the incident. ``subject``: the labels that its links carry, in order;
    ``variables``: the dashboard's variables that are set, by label."""

    alert: str
    severity: str
    component: str
    summary: str
    runbook: str
    dashboard: str
    subject: tuple[str, ...]
    look_back: str = "2h"
    variables: Mapping[str, str] = field(default_factory=lambda: _VARIABLES)

    def links(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Where it leads for an instance with ``labels``."""
        query = [(name, quote_plus(labels.get(name, ""))) for name in self.subject]
        variables = "&".join(
            f"var-{self.variables[name]}={value}" for name, value in query if name in self.variables
        )
        chosen = "".join(f"&{name}={value}" for name, value in query)
        narrowed = f" --match cluster={_harmless(labels['cluster'])}" if "cluster" in labels else ""
        return {
            "runbook_url": f"{DIAG}/runbooks/{self.runbook}?v={VERSION}",
            "dashboard_url": f"{GRAFANA}/d/llmdiag-{self.dashboard}" + (f"?{variables}" if variables else ""),
            "triage_url": f"{DIAG}/triage?alertname={self.alert}{chosen}",
            "triage_command": f"diag triage --last {self.look_back}{narrowed}",
        }


@dataclass(frozen=True, slots=True)
class Fires:
    """One firing instance: its labels beside the rule's own, and its description in full."""

    labels: Mapping[str, str]
    description: str


@dataclass(frozen=True, slots=True)
class Case:
    """A test of one alert. ``series``: name with labels to promtool's notation of values, a sample a minute.

    ``silent``: minutes at which it must not fire; ``fires``: by minute, everything that fires then;
    ``every``: minutes between two samples, where a case lasts for days."""

    told: Told
    name: str
    series: Mapping[str, str]
    silent: Sequence[int] = ()
    fires: Mapping[int, Sequence[Fires]] = field(default_factory=dict)
    every: int = 1

    def test(self) -> dict[str, Any]:
        """As promtool reads it."""
        checks: dict[int, list[dict[str, Any]]] = {minute: [] for minute in self.silent} | {
            minute: [self._expected(one) for one in instances] for minute, instances in self.fires.items()
        }
        return {
            "name": f"{self.told.alert}: {self.name}",
            "interval": f"{self.every}m",
            "external_labels": {"grafana_url": GRAFANA, "llmdiag_url": DIAG},
            "input_series": [{"series": one, "values": values} for one, values in self.series.items()],
            "alert_rule_test": [
                {"eval_time": f"{minute}m", "alertname": self.told.alert, "exp_alerts": checks[minute]}
                for minute in sorted(checks)
            ],
        }

    def _expected(self, one: Fires) -> dict[str, Any]:
        own = {"component": self.told.component, "service": "llm", "severity": self.told.severity}
        words = {"summary": self.told.summary, "description": one.description}
        return {
            "exp_labels": dict(sorted((own | dict(one.labels)).items())),
            "exp_annotations": words | self.told.links(one.labels),
        }


def _harmless(value: str) -> str:
    """A label is whatever a target says; in a command line nothing may be left of a shell's own signs."""
    return re.sub(r"[^A-Za-z0-9_.:/-]", "_", value)


def silent(told: Told, name: str, series: Mapping[str, str], *minutes: int, every: int = 1) -> Case:
    """A case in which nothing ever fires."""
    return Case(told, name, series, silent=minutes, every=every)


def gauge(*pieces: tuple[int, float]) -> str:
    """A value held for so many minutes, then the next: ``(60, 5), (30, 20)`` -> ``5x59 20x29``."""
    return " ".join(
        f"{value:.10g}x{minutes - 1}" if minutes > 1 else f"{value:.10g}" for minutes, value in pieces
    )


def counter(*pieces: tuple[int, float], start: float = 0.0) -> str:
    """A counter that grows so much a minute: ``(60, 5), (30, 20)`` -> ``0+5x59 300+20x29``."""
    parts: list[str] = []
    for minutes, growth in pieces:
        parts.append(f"{start:.10g}+{growth:.10g}x{minutes - 1}")
        start += minutes * growth
    return " ".join(parts)
