"""``diag demo``: triage an incident that ships with the package."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diag.cli import answering
from diag.cli.config import read_defaults
from diag.cli.options import Answer, Debug, with_options

if TYPE_CHECKING:
    from diag.api import Demo

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

    format = answering.chosen_format(answer, defaults)
    if list_all:
        answering.deliver(_listed(api.demos(), format), answer)
        return 0
    incident = api.demo_named(name)
    answering.say(incident.banner)
    with answering.ProgressLine() as progress:
        verdict = api.demo(name, progress=progress)
    answering.deliver(api.render(verdict, format, answering.layout(answer, defaults)), answer)
    return 0


command = demo


def _listed(incidents: Sequence[Demo], format: str) -> str:
    if format == "json":
        import msgspec

        rows = [{"name": one.name, "text": one.text, "simulated": one.simulated} for one in incidents]
        return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n"
    if format == "markdown":
        return "".join(f"- `{one.name}`: {one.text}\n" for one in incidents)
    width = max(len(one.name) for one in incidents)
    return "".join(f"{one.name:<{width}}  {one.text}\n" for one in incidents)
