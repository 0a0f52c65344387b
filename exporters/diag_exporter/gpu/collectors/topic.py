"""What every GPU collector shares: read each GPU that is up, write its rows, leave out what is unknown."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

from diag_exporter.families import Family, Group, NoData, Row, Rows
from diag_exporter.gpu.fleet import Fleet, Gpu
from diag_exporter.gpu.options import GpuOptions

__all__ = ["GPU", "GpuCollector", "Table", "counter", "gauge", "scaled"]

GPU = ("uuid", "gpu")
"""Labels of every series about a GPU. Whatever else is known of it stands in ``llmdiag_gpu_info``."""

_R = TypeVar("_R")
_PREFIX = "llmdiag_"


def gauge(name: str, text: str, source: str, absence: str, *more: str, default: bool = True) -> Family:
    """A gauge about a GPU; ``more`` labels follow uuid and gpu."""
    return Family(f"llmdiag_gpu_{name}", "gauge", text, (*GPU, *more), absence, source, default)


def counter(name: str, text: str, source: str, absence: str, *more: str, default: bool = True) -> Family:
    """A counter about a GPU; ``more`` labels follow uuid and gpu."""
    return Family(f"llmdiag_gpu_{name}_total", "counter", text, (*GPU, *more), absence, source, default)


def scaled(value: float | None, factor: float) -> float | None:
    """A reading in base units; unknown stays unknown."""
    return None if value is None else value * factor


class Table:
    """Rows in the making. What is None or no number gets no row, nor does a counter below zero."""

    def __init__(self, families: tuple[Family, ...], *, detail: bool) -> None:
        # By name without prefix: whether it is a counter, and its rows.
        self._rows: dict[str, tuple[bool, list[Row]]] = {
            one.name.removeprefix(_PREFIX): (one.kind == "counter", [])
            for one in families
            if one.default or detail
        }

    def put(self, name: str, value: float | None, *labels: str) -> None:
        """One series; ``name`` without the prefix ``llmdiag_``."""
        if value is None or not math.isfinite(value):
            return
        entry = self._rows.get(name)
        if entry is not None and not (entry[0] and value < 0):
            entry[1].append(Row(labels, float(value)))

    def rows(self) -> Rows:
        """All rows by family, families without any left out."""
        return {_PREFIX + name: rows for name, (_, rows) in self._rows.items() if rows}


class GpuCollector(Generic[_R]):
    """A topic: ``read`` asks one GPU, ``write`` turns the reading into rows."""

    name: str
    group: Group = "fast"
    families: tuple[Family, ...] = ()
    fields: tuple[int, ...] = ()  # field ids that it wants read with those of its group

    def __init__(self, fleet: Fleet, options: GpuOptions) -> None:
        self.fleet = fleet
        self.detail = options.profile == "full"
        fleet.want_fields(self.group, self.fields)

    def collect(self, now: float) -> Rows:
        """Rows of all GPUs that are up; ``NoData`` if none of them knows the topic."""
        table = self.table()
        for gpu, reading in self.fleet.read(now, self.read):
            self.write(table, gpu, reading)
        rows = table.rows()
        if not rows:
            raise NoData(f"no GPU tells about {self.name}")
        return rows

    def table(self) -> Table:
        """An empty table for this pass."""
        return Table(self.families, detail=self.detail)

    def field(self, gpu: Gpu, identity: int) -> float | None:
        """One field value of this pass in the driver's unit."""
        return self.fleet.fields(gpu, self.group).get(identity)

    def read(self, gpu: Gpu) -> _R:
        """Ask one GPU."""
        raise NotImplementedError

    def write(self, table: Table, gpu: Gpu, reading: _R) -> None:
        """Put the rows of one GPU into the table."""
        raise NotImplementedError
