"""``diag record``: take what a source holds along as a bundle."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from diag.cli import answering, asking
from diag.cli.config import read_defaults
from diag.cli.options import Asked, Debug, with_options

__all__ = ["command"]


@with_options
def record(
    asked: Asked,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="bundle to write: a folder, .zip or .tar.gz")
    ],
    hash_hosts: Annotated[bool, typer.Option("--hash-hosts", help="replace host names by hashes")] = False,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Write a bundle that triages like the live source: metrics, records, logs, events."""
    defaults = read_defaults(Path.cwd(), os.environ)
    refs = asking.references(asked, defaults)
    question = asking.question(asked, defaults, time.time())
    access = asking.access(asked, defaults)
    from diag import api

    with answering.ProgressLine() as progress:
        written = api.record(
            refs,
            Path(output),
            question=question,
            access=access,
            live_seconds=asking.live_seconds(defaults),
            hash_hosts=hash_hosts,
            progress=progress,
        )
    answering.say(f"wrote {written}")
    return 0


command = record
