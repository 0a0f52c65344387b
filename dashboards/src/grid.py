"""Where panels stand: left to right in 24 columns, a new line where the next one does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dashboards.src.model import Panel, Row

__all__ = ["COLUMNS", "Place", "placed"]

COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Place:
    """A rectangle on the grid: left, top, width, height."""

    x: int
    y: int
    width: int
    height: int


def placed(rows: Sequence[Row]) -> Iterator[tuple[Row | Panel, Place]]:
    """Every row's heading and every panel with its place, in reading order.

    Raises ``ValueError`` for a panel wider than the grid.
    """
    top = 0
    for row in rows:
        yield row, Place(0, top, COLUMNS, 1)
        top += 1
        left = tallest = 0
        for panel in row.panels:
            if not 0 < panel.width <= COLUMNS:
                raise ValueError(f"{panel.title!r} is {panel.width} columns wide, the grid has {COLUMNS}")
            if left + panel.width > COLUMNS:
                top, left, tallest = top + tallest, 0, 0
            yield panel, Place(left, top, panel.width, panel.height)
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest
