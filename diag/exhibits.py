"""What a report shows beside words: curves thinned out for paper, and what the incident cost.

A verdict carries them, so that a saved verdict can be written up later without asking any source again.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cohort", "Curve", "Exhibit", "Fired", "Impact", "Mark", "Panel", "Query"]


@dataclass(frozen=True, slots=True)
class Curve:
    """``y`` over ``x``, equal length; None where nothing was measured. ``points``: unconnected observations,
    else a line. ``x`` is unix seconds or tokens, as the exhibit says."""

    label: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    points: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves of one quantity. ``log``: both axes are logarithmic."""

    title: str
    unit: str
    curves: tuple[Curve, ...]
    log: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment (unix seconds) drawn through every panel of a time axis. ``kind``: onset, event."""

    time: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One figure. ``x_unit``: "time" or "tokens". ``panels`` share the axis, top to bottom."""

    id: str
    title: str
    caption: str
    x_unit: str
    panels: tuple[Panel, ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Cohort:
    """One group of requests: how long its first tokens took (95th percentile, seconds) before and during, how
    many it sent during, and the seconds it waited beyond what was usual for it."""

    name: str
    requests: int
    before_seconds: float | None
    during_seconds: float | None
    lost_seconds: float | None


@dataclass(frozen=True, slots=True)
class Impact:
    """What the incident cost. Numbers are of the incident's window; None where records don't tell.

    ``slow``: requests whose first token took longer than 95 % did before; ``lost_seconds``: waiting beyond
    the usual, summed over all requests. ``source`` says what was counted."""

    requests: int | None
    slow: int | None
    failed: int | None
    left: int | None
    sessions: int | None
    tenants: int | None
    lost_seconds: float | None
    cohorts: tuple[Cohort, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Fired:
    """An alert that fired. Unix seconds; ``time`` None: before the data begins; ``until`` None: not yet
    over."""

    alert: str
    time: float | None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """How to see a signal again: the PromQL over ``producer``'s own metrics that gave it."""

    signal: str
    producer: str
    promql: str
