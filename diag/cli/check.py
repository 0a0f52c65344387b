"""``diag check``: what is there to judge by, and what is missing."""

from __future__ import annotations

import os
import time
from pathlib import Path

from diag.cli import answering, asking
from diag.cli.config import read_defaults
from diag.cli.options import Answer, Asked, Debug, with_options

__all__ = ["command"]


@with_options
def check(
    asked: Asked,
    answer: Answer,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Show which signals are there, which are missing and how to get them, what can be assessed."""
    defaults = read_defaults(Path.cwd(), os.environ)
    refs = asking.references(asked, defaults)
    format = answering.chosen_format(answer, defaults)
    question = asking.question(asked, defaults, time.time())
    access = asking.access(asked, defaults)
    from diag import api
    from diag.renderers.checked import render_check

    with answering.ProgressLine() as progress:
        checked = api.check(
            refs,
            question=question,
            access=access,
            live_seconds=asking.live_seconds(defaults),
            progress=progress,
        )
    answering.deliver(render_check(checked, format, answering.layout(answer, defaults)), answer)
    return 0


command = check
