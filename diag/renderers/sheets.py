"""A titled sheet of two-column sections for the terminal: what check and explain print."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from diag.renderers import RenderOptions

__all__ = ["console_for", "finished", "grid", "pairs", "sheet"]

_NARROWEST, _WIDEST = 40, 100
_ABOUT_WIDTH = 36


def console_for(options: RenderOptions) -> Console:
    """A console that writes to memory, exactly as wide and as colourful as asked."""
    return Console(
        file=StringIO(),
        width=max(_NARROWEST, min(options.width, _WIDEST)),
        force_terminal=options.color,
        color_system="standard" if options.color else None,
        no_color=not options.color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def finished(text: str) -> str:
    """``text`` without trailing blanks: table cells are padded, and tickets would keep it."""
    return "\n".join(line.rstrip() for line in text.rstrip().split("\n")) + "\n"


def grid(*fixed: bool) -> Table:
    """Columns side by side; a fixed one never wraps."""
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for column_fixed in fixed:
        table.add_column(no_wrap=column_fixed, overflow="fold")
    return table


def pairs(rows: Sequence[tuple[str, str]], about_width: int = _ABOUT_WIDTH) -> Table | None:
    """Rows of what it is about and what is said; bullets where it is about nothing."""
    if not rows:
        return None
    bare = not any(about for about, _ in rows)
    table = grid(bare, False)
    # A long list of ids wraps inside its column instead of starving the sentence.
    table.columns[0].max_width = about_width
    for about, text in rows:
        table.add_row(Text("\N{BULLET}", style="dim") if bare else Text(about, style="bold"), Text(text))
    return table


def sheet(
    headline: str,
    context: str,
    sections: Sequence[tuple[str, Sequence[tuple[str, str]]]],
    options: RenderOptions,
    *,
    about_width: int = _ABOUT_WIDTH,
) -> str:
    """The sheet as text; empty sections are left out."""
    console = console_for(options)
    with console.capture() as capture:
        console.print(Text(headline, style="bold"))
        if context:
            console.print(Text(context, style="dim"))
        for title, rows in sections:
            body = pairs(rows, about_width)
            if body is not None:
                console.print()
                console.print(Text(title.upper(), style="bold cyan"))
                console.print(Padding(body, (0, 0, 0, 2)))
    return finished(capture.get())
