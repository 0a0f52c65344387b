"""``diag report``: write an incident up for people who were not there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diag.cli import answering, asking
from diag.cli.config import read_defaults
from diag.cli.options import Asked, Debug, with_options

if TYPE_CHECKING:
    from diag.model import Verdict

__all__ = ["command"]


@with_options
def report(
    asked: Asked,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="postmortem to write: .md or .html")
    ],
    redact: Annotated[
        list[str] | None,
        typer.Option("--redact", metavar="KIND", help="hide names: hosts, tenants, sessions (repeatable)"),
    ] = None,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Write the postmortem of a saved verdict (diag triage … -o verdict.json) or of a source.

    Sections for people are kept when the file is written again."""
    from diag.api.reports import check_name, write_report

    check_name(Path(output))
    verdict = _saved(asked) or _judged(asked)
    kinds = [kind for group in redact or () for kind in group.split(",")]
    for path in write_report(verdict, Path(output), redact=kinds):
        answering.say(f"wrote {path}")
    return 0


command = report


def _saved(asked: Asked) -> Verdict | None:
    from diag.api.reports import load_verdict

    named = asked.sources or ()
    return load_verdict(Path(named[0])) if len(named) == 1 else None


def _judged(asked: Asked) -> Verdict:
    defaults = read_defaults(Path.cwd(), os.environ)
    from diag import api

    with answering.ProgressLine() as progress:
        return api.triage(
            asking.references(asked, defaults),
            question=asking.question(asked, defaults, time.time()),
            access=asking.access(asked, defaults),
            live_seconds=asking.live_seconds(defaults),
            progress=progress,
        )
