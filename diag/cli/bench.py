"""``diag bench``: how often triage is right, on cases whose answer is known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diag.cli import answering
from diag.cli.config import read_defaults
from diag.cli.options import Answer, Debug, with_options
from diag.errors import DiagError

if TYPE_CHECKING:
    from diag.accuracy.tables import Table

__all__ = ["command"]


@with_options
def bench(
    answer: Answer,
    asked: Annotated[
        list[str],
        typer.Argument(
            metavar="CASES...",
            help="develop, calibrate, test, shifted, recorded, reconstructed, bundles, or folders of them",
            show_default=False,
        ),
    ],
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="processes")] = 1,
    rows: Annotated[bool, typer.Option("--rows", help="a line for every case, too")] = False,
    write: Annotated[
        str | None, typer.Option("--write", metavar="FILE", help="write the page of docs/ to a file")
    ] = None,
    results: Annotated[
        str | None,
        typer.Option("--results", metavar="FOLDER", help="where judged cases are kept (bench/out/results)"),
    ] = None,
    manifest: Annotated[
        str | None, typer.Option("--manifest", metavar="FILE", help="a corpus of your own (make corpus)")
    ] = None,
    no_baro: Annotated[bool, typer.Option("--no-baro", help="leave fse-baro out")] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="print the confidence that fits these cases best")
    ] = False,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Judge labelled cases, and let rival methods judge them too: how often is whom right, and how sure."""
    from diag.api import accuracy as api

    format = answering.chosen_format(answer, read_defaults(Path.cwd(), os.environ))
    with answering.ProgressLine() as progress:
        found = api.bench(
            asked,
            jobs=jobs,
            results=Path(results) if results else api.RESULTS,
            baro=not no_baro,
            manifest=Path(manifest) if manifest else None,
            progress=progress,
        )
    answering.deliver(_told(found.tables(every_case=rows), format), answer)
    if calibrate:
        answering.say(api.calibrate([row for own in found.rows.values() for row in own])[1])
    if write is not None:
        _write(Path(write), found.page(_again(asked, write)))
    return 0


command = bench


def _told(tables: list[Table], format: str) -> str:
    from diag.accuracy.tables import as_markdown, as_text

    if format == "json":
        import msgspec

        return msgspec.json.format(msgspec.json.encode(tables), indent=2).decode() + "\n"
    return as_markdown(tables) if format == "markdown" else as_text(tables)


def _again(asked: list[str], write: str) -> str:
    return f"make corpus\ndiag bench {' '.join(asked)} --jobs 2 --write {write}"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DiagError(
            f"cannot write {path}: {error.strerror or error}", hint="choose another --write"
        ) from None
    answering.say(f"wrote {path}")
