"""What a rule is: thresholds with a reason, recordings, alerts, and the files they go into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from diag.assets.rules.links import Links

__all__ = [
    "Alert",
    "Component",
    "Dashboard",
    "Needs",
    "Recording",
    "RuleFile",
    "Severity",
    "Threshold",
    "all_of",
    "any_of",
    "duration",
]

Severity = Literal["critical", "warning", "info", "none"]
Component = Literal["slo", "queue", "cache", "engine", "gpu", "fabric", "host", "requests", "meta"]
Dashboard = Literal["incident", "sessions", "engine", "cache", "gpu", "fabric", "tenants"]

# Every entry must be met; ``vllm|sglang`` is met by either.
Needs = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that an alert compares with, and why it is this one. ``f"{threshold}"`` is PromQL."""

    value: float
    unit: str
    reason: str

    def __str__(self) -> str:
        """The number as PromQL reads it."""
        return str(int(self.value)) if self.value == int(self.value) else repr(self.value)


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording rule. ``signal`` is the canonical signal it carries, or empty; ``producer`` the
    engine file it was generated from, or empty where several are read at once."""

    record: str
    expr: str
    producer: str = ""
    signal: str = ""
    comment: str = ""

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels the rule adds."""
        return {"producer": self.producer} if self.producer else {}


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert as data.

    ``runbook`` is a hypothesis id or a symptom id; ``causes`` are the hypotheses it can point to;
    ``needs`` the producers without which it is blind; ``thresholds`` the constants in ``expr``;
    ``subject`` the labels that say what it is about, in the order in which a title names them;
    ``look_back`` how far back the triage it proposes looks.
    """

    name: str
    expr: str
    severity: Severity
    component: Component
    summary: str
    description: str
    runbook: str
    dashboard: Dashboard
    needs: Needs
    causes: tuple[str, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    subject: tuple[str, ...] = ("instance",)
    for_seconds: int = 0
    keep_firing_seconds: int = 0
    look_back: str = "2h"
    comment: str = ""

    @property
    def of_host(self) -> bool:
        """Whether ``instance`` is the exporter of a GPU or host, not an engine."""
        return self.component == "host" or not {"gpu", "device"}.isdisjoint(self.subject)

    @property
    def labels(self) -> dict[str, str]:
        """Labels the rule adds."""
        return {"severity": self.severity, "component": self.component, "service": "llm"}

    def annotations(self, links: Links) -> dict[str, str]:
        """What the alert tells, as Prometheus templates."""
        return {
            "summary": self.summary,
            "description": self.description,
            "runbook_url": links.runbook(self.runbook),
            "dashboard_url": links.dashboard(self.dashboard, self.subject, of_host=self.of_host),
            "triage_url": links.triage(self.name, self.subject),
            "triage_command": links.triage_command(self.look_back),
        }


@dataclass(frozen=True, slots=True)
class RuleFile:
    """One file of rules: ``path`` below ``rules/``, ``title`` and ``text`` for its header."""

    path: str
    title: str
    text: str
    needs: Needs
    recordings: tuple[Recording, ...] = ()
    alerts: tuple[Alert, ...] = ()
    interval_seconds: int = 30
    group: str = ""

    @property
    def rules(self) -> tuple[Recording | Alert, ...]:
        """In the order of evaluation."""
        return (*self.recordings, *self.alerts)

    @property
    def name(self) -> str:
        """Name of the rule group, unique over all files."""
        return self.group or "llmdiag-" + self.path.removesuffix(".yml").replace("/", "-").replace("_", "-")


def duration(seconds: int) -> str:
    """``90`` -> ``90s``, ``300`` -> ``5m``: the longest unit that fits evenly."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def all_of(*conditions: str) -> str:
    """Conditions that must hold together, a line each; the first one's value is the alert's."""
    return "\nand ".join(conditions)


def any_of(*conditions: str) -> str:
    """Conditions of which one is enough, a line each. Each compares on its own: in ``a or b > 0`` a
    zero of ``a`` would fire."""
    return "\nor ".join(conditions)
