"""Assembles the commands. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from diag import __version__
from diag.cli import (
    assets,
    bench,
    check,
    demo,
    explain,
    record,
    report,
    serve,
    simulate,
    triage,
    watch,
)

__all__ = ["app"]

# Rich markup in help and pretty tracebacks would import rich at every start.
app = typer.Typer(
    name="diag",
    help="Name the root cause when a self-hosted LLM service gets slow and no alert says why.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (demo, triage, check, explain, record, report, watch, serve, simulate, bench):
    app.command()(module.command)
app.add_typer(assets.app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"diag {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version and exit")
    ] = False,
) -> None:
    """Name the root cause when a self-hosted LLM service gets slow and no alert says why."""
