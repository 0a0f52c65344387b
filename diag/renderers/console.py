"""The terminal page, width-aware; plain text when there is no terminal to colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from diag.model import Stance, Verdict
from diag.renderers import RenderOptions
from diag.renderers.page import Cause, Line, Page, page
from diag.renderers.sheets import console_for, finished, grid, pairs

__all__ = ["render"]

_STATE_STYLES = {"supported": "bold red", "undecided": "yellow"}
_SIGNS = {Stance.FOR.value: ("+", "green"), Stance.AGAINST.value: ("\N{MINUS SIGN}", "red")}


def render(verdict: Verdict, options: RenderOptions) -> str:
    """``verdict`` as a page at most 100 columns wide, ending in a newline."""
    content = page(verdict, options.top)
    console = console_for(options)
    with console.capture() as capture:
        _print_page(console, content)
    return finished(capture.get())


def _print_page(console: Console, content: Page) -> None:
    console.print(Text(content.headline, style="bold green" if content.healthy else "bold"))
    console.print(Text("; ".join(content.context), style="dim"))
    _section(console, "Symptoms", _pairs(content.symptoms))
    if content.leading:
        _heading(console, "Unexplained" if content.leading.id == "unknown" else "Leading cause")
        _print_cause(console, content.leading)
    if content.others:
        _heading(console, "Risks, no harm to users yet" if content.healthy else _others_title(content))
        for cause in content.others:
            _print_cause(console, cause, brief=True)
    _section(console, "Not excluded", Text(content.left_out) if content.left_out else None)
    _section(console, "Unexplained movers", _pairs(content.leads))
    _section(console, "Ruled out", _pairs(content.ruled_out))
    _section(console, "Could not be checked", _pairs(content.unchecked))
    _section(console, "Notes", _bullets(content.notes))
    if content.next_measurement:
        _section(console, "Next measurement", Text(content.next_measurement))


def _others_title(content: Page) -> str:
    return "Also stands" if content.leading else "What stands"


def _heading(console: Console, title: str) -> None:
    console.print()
    console.print(Text(title.upper(), style="bold cyan"))


def _section(console: Console, title: str, body: Table | Text | None) -> None:
    if body is not None:
        _heading(console, title)
        console.print(_indented(body))


def _print_cause(console: Console, cause: Cause, *, brief: bool = False) -> None:
    head = Text.assemble(
        (cause.state, _STATE_STYLES.get(cause.state, "")), "  ", (cause.id, "bold"), f"  {cause.title}"
    )
    console.print(_indented(head))
    if cause.facts:
        console.print(_indented(Text(", ".join(cause.facts)), 4))
    if cause.hits:
        console.print(_indented(_labelled("hits", Text("; ".join(cause.hits))), 4))
    if brief:
        console.print(_indented(_evidence(cause.evidence[:2]), 4))
        if cause.actions:
            console.print(_indented(_labelled("do", Text(cause.actions[0].text)), 4))
        return
    if cause.chain:
        console.print(_indented(_labelled("chain", _chain(cause)), 4))
    if cause.evidence:
        console.print(_indented(_labelled("why", _evidence(cause.evidence)), 4))
    if cause.missing:
        console.print(_indented(_labelled("unseen", _bullets(cause.missing) or Text("")), 4))
    if cause.actions:
        _section(console, "Do first", _actions(cause.actions))
    if cause.runbook:
        console.print(_indented(Text(f"runbook: {cause.runbook}", style="dim")))


def _indented(body: Table | Text, left: int = 2) -> Padding:
    return Padding(body, (0, 0, 0, left))


def _labelled(label: str, body: Table | Text) -> Table:
    table = grid(False, False)
    table.columns[0].width = 6
    table.add_row(Text(label, style="dim"), body)
    return table


def _pairs(lines: Sequence[Line]) -> Table | None:
    return pairs([(line.about, line.text) for line in lines])


def _bullets(lines: Iterable[str]) -> Table | None:
    table = grid(True, False)
    for line in lines:
        table.add_row(Text("\N{BULLET}", style="dim"), Text(line))
    return table if table.row_count else None


def _chain(cause: Cause) -> Table:
    table = grid(True, True, False)
    table.columns[1].justify = "right"
    for link in cause.chain:
        table.add_row(Text(link.time), Text(link.after, style="dim"), Text(link.text))
    return table


def _evidence(lines: Sequence[Line]) -> Table:
    table = grid(True, False)
    for line in lines:
        sign, style = _SIGNS[line.about]
        table.add_row(Text(sign, style=style), Text(line.text))
    return table


def _actions(lines: Sequence[Line]) -> Table:
    table = grid(True, False)
    for number, line in enumerate(lines, 1):
        text = Text(line.text)
        if line.about != "safe":
            text = Text.assemble((f"{line.about}: ", "yellow"), line.text)
        table.add_row(Text(f"{number}."), text)
    return table
