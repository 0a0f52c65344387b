"""``diag demo``: triage an incident that ships with the package."""

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
def demo(
    answer: Answer,
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]", help="an incident of --list (default: context_growth)", show_default=False
        ),
    ] = "context_growth",
    list_all: Annotated[bool, typer.Option("--list", help="list the incidents")] = False,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Triage an incident that ships with the package; nothing else is needed."""
    # Defaults may name a store and its credentials: a demo takes only the looks from them.
    defaults = read_defaults(Path.cwd(), os.environ)
    from diag import api

    if list_all:
        incidents = api.demos()
        width = max(len(one.name) for one in incidents)
        answering.deliver("".join(f"{one.name:<{width}}  {one.text}\n" for one in incidents), answer)
        return 0
    format = answering.chosen_format(answer, defaults)
    incident = api.demo_named(name)
    answering.say(incident.banner)
    with answering.ProgressLine() as progress:
        verdict = api.demo(name, progress=progress)
    answering.deliver(api.render(verdict, format, answering.layout(answer, defaults)), answer)
    return 0


command = demo
