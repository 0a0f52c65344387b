"""``diag explain``: a hypothesis as a card with its runbook, a symptom's runbook, or the list of all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diag.cli import answering
from diag.cli.config import read_defaults
from diag.cli.options import Answer, Debug, with_options

if TYPE_CHECKING:
    from diag.renderers import RenderOptions

__all__ = ["command"]


@with_options
def explain(
    answer: Answer,
    id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="hypothesis or symptom; without it: the list", show_default=False
        ),
    ] = None,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Explain a hypothesis or a symptom: mechanism, signs, what rules it out, and its whole runbook.

    The symptoms: slow_first_token, slow_tokens, failing_requests, aborted_requests, standstill,
    queue_growing, target_down, blind_rules, watchdog."""
    defaults = read_defaults(Path.cwd(), os.environ)
    format = answering.chosen_format(answer, defaults)
    from diag import api
    from diag.renderers.cards import render_list

    options = answering.layout(answer, defaults)
    text = _explained(id, format, options) if id else render_list(api.cards(), format, options)
    answering.deliver(text, answer)
    return 0


command = explain


def _explained(id: str, format: str, options: RenderOptions) -> str:
    from diag import api
    from diag.renderers.cards import page_as_json, render_card
    from diag.renderers.pages import render_page

    page = api.runbook(id)
    card = next((one for one in api.cards() if one.id == id), None)
    if format == "json":
        return page_as_json(id, page) if card is None else render_card(card, format, options, page)
    if card is None:
        return render_page(page, format, options)
    return render_card(card, format, options) + "\n" + render_page(page, format, options, titled=False)
