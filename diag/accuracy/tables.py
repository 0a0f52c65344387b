"""A table, and its two shapes: Markdown for the page, aligned text for the console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diag.stats.proportions import Share

__all__ = ["Table", "as_markdown", "as_text", "number", "percent", "share"]


@dataclass(frozen=True, slots=True)
class Table:
    """``note`` stands below it and says how to read it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def percent(value: float) -> str:
    """0.1234 as "12.3 %"; "–" when there was nothing to count."""
    return "–" if value != value else f"{100 * value:.1f} %"


def number(value: float, digits: int = 3) -> str:
    """A plain figure; "–" when there was nothing to count."""
    return "–" if value != value else f"{value:.{digits}f}"


def share(one: Share) -> str:
    """With its 95 % interval and its count."""
    if one.count == 0:
        return "– (0 cases)"
    return f"{percent(one.value)} [{100 * one.low:.1f}, {100 * one.high:.1f}] of {one.count}"


def as_markdown(tables: Sequence[Table]) -> str:
    """Headings of the third level; pipes in cells are escaped."""
    parts: list[str] = []
    for table in tables:
        lines = [f"### {table.title}", "", _line(table.header), _line(["---"] * len(table.header))]
        lines += [_line(row) for row in table.rows]
        parts.append("\n".join([*lines, "", table.note] if table.note else lines))
    return "\n\n".join(parts) + "\n"


def as_text(tables: Sequence[Table]) -> str:
    """Columns wide enough for their longest cell; the first is left, the others right."""
    parts: list[str] = []
    for table in tables:
        grid = [table.header, *table.rows]
        widths = [max(len(row[i]) for row in grid) for i in range(len(table.header))]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in grid
        ]
        parts.append("\n".join([table.title, *lines, *([table.note] if table.note else [])]))
    return "\n\n".join(parts) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
