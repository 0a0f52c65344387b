"""``diag triage``: the main job."""

from __future__ import annotations

import os
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diag.cli import answering, asking
from diag.cli.config import read_defaults
from diag.cli.options import Answer, Asked, Debug, with_options

if TYPE_CHECKING:
    from diag.model import Verdict

__all__ = ["FAILED", "FailOn", "command", "stands"]

FAILED = 10


class FailOn(StrEnum):
    """What makes ``diag triage`` exit with 10."""

    SUPPORTED = "supported"
    UNDECIDED = "undecided"


@with_options
def triage(
    asked: Asked,
    answer: Answer,
    fail_on: Annotated[
        FailOn | None, typer.Option("--fail-on", help="exit with 10 when such a hypothesis stands")
    ] = None,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Name the root cause: since when, for whom, how sure, what was ruled out, what to do first."""
    defaults = read_defaults(Path.cwd(), os.environ)
    refs = asking.references(asked, defaults)
    format = answering.chosen_format(answer, defaults)
    question = asking.question(asked, defaults, time.time())
    access = asking.access(asked, defaults)
    from diag import api

    with answering.ProgressLine() as progress:
        verdict = api.triage(
            refs,
            question=question,
            access=access,
            live_seconds=asking.live_seconds(defaults),
            progress=progress,
        )
    answering.deliver(api.render(verdict, format, answering.layout(answer, defaults)), answer)
    return FAILED if fail_on and stands(verdict, fail_on) else 0


command = triage


def stands(verdict: Verdict, least: FailOn) -> bool:
    """Whether a hypothesis is in state ``least`` or surer."""
    states = ("supported",) if least is FailOn.SUPPORTED else ("supported", "undecided")
    return any(one.state in states for one in verdict.assessments)
