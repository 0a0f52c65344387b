"""``diag serve``: alerts in, verdicts out."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diag.cli import answering, asking
from diag.cli.config import read_defaults
from diag.cli.options import Asked, Debug, with_options
from diag.cli.times import duration_seconds
from diag.errors import DiagError, UsageError

if TYPE_CHECKING:
    from diag.model import Verdict, Window
    from diag.serve.worker import Judge

__all__ = ["command"]


@with_options
def serve(
    asked: Asked,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="where to listen")
    ] = "127.0.0.1:9878",
    store: Annotated[
        str, typer.Option("--store", metavar="FILE", help="where verdicts are kept (SQLite)")
    ] = "diag-verdicts.sqlite",
    token_file: Annotated[
        str | None,
        typer.Option("--token-file", metavar="FILE", help="token asked of everybody; needed beyond loopback"),
    ] = None,
    base_url: Annotated[
        str, typer.Option("--base-url", metavar="URL", help="how others reach this service, for links")
    ] = "",
    look_back: Annotated[
        str, typer.Option("--look-back", metavar="1h", help="how far before the alert to look")
    ] = "1h",
    again: Annotated[
        str, typer.Option("--again", metavar="2m", help="judge anew this often while an alert fires")
    ] = "2m",
    notify_url: Annotated[
        str | None,
        typer.Option("--notify-url", metavar="URL", help="post each first verdict there (Slack-compatible)"),
    ] = None,
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Take Alertmanager's webhook, triage the alert's window, show the answer on a page."""
    _needs_extra()
    defaults = read_defaults(Path.cwd(), os.environ)
    host, port = _address(listen)
    from diag.serve.running import Plan, run
    from diag.serve.settings import Settings

    plan = Plan(
        settings=Settings(host, port, token=_token(token_file), base_url=base_url),
        store=Path(store),
        judge=_judge(asked),
        look_back_seconds=duration_seconds(look_back, "--look-back"),
        again_seconds=duration_seconds(again, "--again"),
        notify_url=notify_url or "",
    )
    # A wrong source is said now, not when the first alert arrives.
    asking.references(asked, defaults)
    answering.say(f"listening on {plan.settings.address}, verdicts in {store}")
    run(plan)
    return 0


command = serve


def _needs_extra() -> None:
    from importlib.util import find_spec

    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise DiagError("`diag serve` needs starlette and uvicorn", hint="pip install 'llm-diag[serve]'")


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{listen!r} is no address", hint="write HOST:PORT, such as 127.0.0.1:9878")
    return host.strip("[]"), int(port)


def _token(path: str | None) -> str:
    if path is None:
        return ""
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise DiagError(
            f"cannot read {path}: {error.strerror}", hint="give a file that holds a token"
        ) from None
    if not token:
        raise UsageError(f"{path} is empty", hint="write a token into it")
    return token


def _judge(asked: Asked) -> Judge:
    """Ask the sources for a window, as `diag triage` does."""

    def judge(window: Window) -> Verdict:
        from diag import api

        defaults = read_defaults(Path.cwd(), os.environ)
        question = replace(asking.question(asked, defaults, time.time()), window=window)
        return api.triage(
            asking.references(asked, defaults), question=question, access=asking.access(asked, defaults)
        )

    return judge
