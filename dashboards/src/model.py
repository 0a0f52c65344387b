"""What a dashboard is before it is Grafana's: boards of rows of panels of queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Board", "Kind", "Limit", "Panel", "Query", "Row", "State"]

Kind = Literal["timeseries", "stat", "bargauge", "state-timeline"]


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression. ``producer`` names the engine file whose metrics it reads; ``absent`` says
    why no incident that the tests hold has rows for it, and is empty where one has."""

    expr: str
    legend: str
    producer: str
    min_step: str = ""
    absent: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """A line in a panel: the number that ``alert`` compares with, in the panel's unit."""

    value: float
    alert: str
    severity: Literal["critical", "warning", "info", "none"]


@dataclass(frozen=True, slots=True)
class State:
    """What a value of a state timeline means."""

    value: float
    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. ``width`` is in Grafana's 24 columns, ``height`` in its rows of 30 pixels.

    ``runbooks`` are ids of hypotheses or symptoms; ``alerts`` the alerts whose input it shows;
    ``drill`` the board a series leads to, its ``label`` becoming that board's variable ``variable``
    (empty: the board as it is). Series whose name ends in ``dashed`` are drawn so, where a panel shows two
    statistics of each instance.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 8
    runbooks: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    drill: str = ""
    label: str = "instance"
    variable: str = "instance"
    minimum: float | None = 0.0
    maximum: float | None = None
    stacked: bool = False
    states: tuple[State, ...] = ()
    dashed: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row and the hypotheses it helps to tell apart; their ids stand in its title."""

    title: str
    hypotheses: tuple[str, ...]
    panels: tuple[Panel, ...]

    @property
    def heading(self) -> str:
        """The title as Grafana shows it."""
        return f"{self.title} · {', '.join(self.hypotheses)}" if self.hypotheses else self.title


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard; its uid is ``llmdiag-<name>``."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]

    @property
    def uid(self) -> str:
        """Fixed for ever: links and alerts lead to it."""
        return f"llmdiag-{self.name}"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels in reading order."""
        return tuple(panel for row in self.rows for panel in row.panels)
