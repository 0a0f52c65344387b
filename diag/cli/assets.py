"""``diag assets``: what ships beside the command, as files, and against a store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from diag.cli import answering, asking
from diag.cli.config import Defaults, read_defaults
from diag.cli.options import Answer, Debug, Reach, with_options
from diag.errors import UsageError

if TYPE_CHECKING:
    from diag.assets.export import Exported
    from diag.assets.inventory import Choice
    from diag.assets.listing import Section
    from diag.model import Window
    from diag.renderers import RenderOptions

__all__ = ["app"]

_FAILED = 10
_PATH_WIDTH, _NAME_WIDTH = 48, 36

app = typer.Typer(
    name="assets",
    help="Rules, dashboards and runbooks: list them, export them, check what a store would see of them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Engines = Annotated[
    list[str] | None,
    typer.Option("--engine", metavar="NAME", help="only for this serving engine: vllm, sglang (repeatable)"),
]
_Needs = Annotated[
    list[str] | None,
    typer.Option(
        "--needs",
        metavar="EXPORTER",
        help="only what needs no exporter but: llmdiag, dcgm, nvidia_gpu_exporter, node, kubernetes; "
        "or none (repeatable)",
    ),
]


@with_options
def list_(
    answer: Answer,
    engine: _Engines = None,
    needs: _Needs = None,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """List what ships: path in an export, what it is, what it needs."""
    defaults = read_defaults(Path.cwd(), os.environ)
    format = answering.chosen_format(answer, defaults)
    from diag.api import assets as api
    from diag.assets import listing

    found = api.shipped(_choice(engine, needs))
    if format == "json":
        answering.deliver(_json(listing.data(found)), answer)
        return 0
    look = answering.layout(answer, defaults)
    text = _sheet(
        listing.headline(found),
        "",
        [*listing.sections(found), listing.unalerted()],
        format,
        look,
        _PATH_WIDTH,
    )
    answering.deliver(text, answer)
    return 0


@with_options
def export(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="where to; made if it does not exist", show_default=False)
    ],
    engine: _Engines = None,
    needs: _Needs = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite files that are not ours, too")] = False,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Write rules, dashboards, runbooks and examples as files; only what fits."""
    from diag.api import assets as api

    done = api.export(folder, _choice(engine, needs), force=force)
    print(_done(folder, done))
    return 0


@with_options
def check(
    answer: Answer,
    reach: Reach,
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="Prometheus-compatible API (default: DIAG_PROMETHEUS_URL or diag.toml)",
            show_default=False,
        ),
    ] = None,
    fail_on: Annotated[
        Literal["blind", "unloaded"] | None,
        typer.Option("--fail-on", help="exit with 10 when an alert that fits this store is so"),
    ] = None,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Tell which rules and panels would be blind on a store, and why; which rules it has not loaded."""
    defaults = read_defaults(Path.cwd(), os.environ)
    format = answering.chosen_format(answer, defaults)
    asked = reach.asked(url)
    store = _one_of(asking.references(asked, defaults))
    now = time.time()
    window = asking.question(asked, defaults, now).window or _lately(defaults, now)
    access = asking.access(asked, defaults)
    from diag.api import assets as api
    from diag.assets import told

    with answering.ProgressLine() as progress:
        checked = api.check(store, window, access=access, progress=progress)
    if format == "json":
        text = _json(told.data(checked))
    else:
        sections = told.sections(checked)
        context = told.context(checked)
        look = answering.layout(answer, defaults)
        text = _sheet(told.headline(checked), context, sections, format, look)
    answering.deliver(text, answer)
    return _FAILED if fail_on and checked.fails(fail_on) else 0


app.command("list")(list_)
app.command("export")(export)
app.command("check")(check)


def _choice(engine: list[str] | None, needs: list[str] | None) -> Choice:
    from diag.assets.inventory import Choice

    return Choice(tuple(engine or ()), tuple(needs or ()))


def _one_of(references: list[str]) -> str:
    if len(references) > 1:
        raise UsageError("several sources are set in diag.toml", hint="name the one that evaluates the rules")
    return references[0]


def _lately(defaults: Defaults, now: float) -> Window:
    from diag.model import Window

    return Window(now - asking.live_seconds(defaults), now)


def _done(folder: str, done: Exported) -> str:
    lines = [f"wrote {len(done.written)} files to {folder}, {len(done.unchanged)} were there already"]
    lines += [f"removed {path}: it no longer ships, or does not fit" for path in done.removed]
    lines += [f"left {path}: it no longer ships, but was edited" for path in done.left]
    return "\n".join(lines)


def _sheet(
    headline: str,
    context: str,
    sections: Iterable[Section],
    format: str,
    look: RenderOptions,
    about_width: int = _NAME_WIDTH,
) -> str:
    if format == "console":
        from diag.renderers.sheets import sheet

        return sheet(headline, context, list(sections), look, about_width=about_width)
    lines = [f"# {headline}", *(["", context] if context else [])]
    for title, rows in sections:
        if rows:
            lines += ["", f"## {title}", ""]
            lines += [f"- **{about}**: {text}" if about else f"- {text}" for about, text in rows]
    return "\n".join(lines) + "\n"


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
