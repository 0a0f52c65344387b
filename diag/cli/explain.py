"""``diag explain``: a hypothesis as a card, or the list of all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from diag.cli import answering
from diag.cli.config import read_defaults
from diag.cli.options import Answer, Debug, with_options

__all__ = ["command"]


@with_options
def explain(
    answer: Answer,
    id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="a hypothesis; without it: the list", show_default=False),
    ] = None,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Explain a hypothesis: mechanism, signs, what rules it out, look-alikes, what to do."""
    defaults = read_defaults(Path.cwd(), os.environ)
    format = answering.chosen_format(answer, defaults)
    from diag import api
    from diag.renderers.cards import render_card, render_list

    options = answering.layout(answer, defaults)
    text = render_card(api.explain(id), format, options) if id else render_list(api.cards(), format, options)
    answering.deliver(text, answer)
    return 0


command = explain
