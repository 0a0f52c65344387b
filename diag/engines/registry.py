"""What an engine file holds: how one producer of metrics spells the canonical signals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from diag.signals.algebra import Expr, Select

__all__ = ["Absent", "Definition", "Engine", "canonical"]

_BARE_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


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
    name (see ``diag.model.Fact``) to the label of that info metric which holds it; ``numbers`` maps
    one to a gauge whose value it is.
    """

    name: str
    title: str
    probe: Select
    signals: Mapping[str, Definition | Absent]
    labels: Mapping[str, str] = field(default_factory=dict)
    info: Select | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, Select] = field(default_factory=dict)


def canonical(engine: Engine, labels: Mapping[str, str]) -> dict[str, str]:
    """Return ``labels`` under their canonical names, in ascending order, empty ones left out.

    Where two raw labels mean the same (``hostname`` and ``node``), the one whose rename stands
    first in ``Engine.labels`` wins, but a label that already bears the canonical name and isn't
    renamed itself wins over both. A bare UUID in ``gpu`` gets the ``GPU-`` that DCGM writes and
    nvidia-smi's exporter leaves out, so that one card has one name.
    """
    result = {name: value for name, value in labels.items() if value and name not in engine.labels}
    for raw, name in engine.labels.items():
        if labels.get(raw):
            result.setdefault(name, labels[raw])
    if _BARE_UUID.fullmatch(result.get("gpu", "")):
        result["gpu"] = f"GPU-{result['gpu']}"
    return dict(sorted(result.items()))
