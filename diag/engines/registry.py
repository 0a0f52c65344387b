"""What an engine file holds: how one producer of metrics spells the canonical signals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from diag.signals.algebra import Expr, Select

__all__ = ["Absent", "Definition", "Engine"]


@dataclass(frozen=True, slots=True)
class Definition:
    """One canonical signal in one producer's metrics.

    ``since`` names the first release known to carry it; ``verified`` is False where no recorded
    page kept with the tests shows the names."""

    expr: Expr
    since: str = ""
    verified: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """A canonical signal this producer cannot deliver, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Engine:
    """One producer of metrics (a serving engine, a GPU or node exporter).

    ``probe`` finds out whether it is there. ``labels`` renames raw labels to canonical ones
    (``UUID`` -> ``gpu``). ``info`` names info metrics whose labels are facts; ``facts`` maps a fact's
    name (see ``diag.model.Fact``) to the label of that info metric which holds it.
    """

    name: str
    title: str
    probe: Select
    signals: Mapping[str, Definition | Absent]
    labels: Mapping[str, str] = field(default_factory=dict)
    info: Select | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
