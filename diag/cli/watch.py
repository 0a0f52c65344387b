"""``diag watch``: a live view."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diag.cli import answering, asking
from diag.cli.config import read_defaults
from diag.cli.options import Asked, Debug, with_options
from diag.cli.times import duration_seconds

if TYPE_CHECKING:
    from diag.api.watching import Watching

__all__ = ["command"]

_WIDTH = 100


@with_options
def watch(
    asked: Asked,
    every: Annotated[str, typer.Option("--every", metavar="15s", help="look again this often")] = "15s",
    once: Annotated[bool, typer.Option("--once", help="look once, print, end")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="print each look's verdict as one line of JSON")
    ] = False,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Watch symptom, signals and ranking as they move. Keys: p pause, - + window, 1-6 open, s save, q
    quit."""
    defaults = read_defaults(Path.cwd(), os.environ)
    refs = asking.references(asked, defaults)
    seconds = duration_seconds(every, "--every")
    window = duration_seconds(asked.last, "--last") if asked.last else asking.live_seconds(defaults)
    from dataclasses import replace

    from diag.api.watching import Watching

    # A window "until now" moves along; only one with both ends given stays where it is.
    fixed = asked.start is not None and asked.end is not None
    question = asking.question(asked, defaults, time.time())
    question = question if fixed else replace(question, window=None)
    access = asking.access(asked, defaults)
    with Watching(refs, question, window_seconds=window, access=access) as watching:
        if json:
            return _lines(watching, seconds, once)
        return _screen(watching, " ".join(refs), window, seconds, once)


command = watch


def _lines(watching: Watching, seconds: float, once: bool) -> int:
    import msgspec

    from diag import api
    from diag.errors import DiagError

    while True:
        try:
            look = watching.look(seconds)
            line = msgspec.json.encode(msgspec.json.decode(api.render(look.verdict, "json"))).decode()
        except DiagError as error:
            if once:
                raise
            line = msgspec.json.encode({"time": time.time(), "error": str(error)}).decode()
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        if once:
            return 0
        time.sleep(seconds)


def _screen(watching: Watching, source: str, window: float, seconds: float, once: bool) -> int:
    from rich.console import Console

    from diag.watch.history import History
    from diag.watch.running import run
    from diag.watch.screen import Showing, screen

    terminal = sys.stdout.isatty()
    plain = not terminal or bool(os.environ.get("NO_COLOR"))
    console = Console(no_color=plain, width=None if terminal else _WIDTH, highlight=False)
    showing = Showing(source, window, seconds)
    if once or not terminal:
        history = History()
        history.seen(watching.look(seconds))
        console.print(screen(history, showing, console.width))
        return 0
    answering.say("")
    run(watching, showing, console)
    return 0
