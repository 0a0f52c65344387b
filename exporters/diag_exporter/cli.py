"""The command line: ``diag-exporter gpu|engine|sessions|all|proxy|demo``.

Exit codes: 0 it ran and stopped cleanly, 1 it could not run as asked or only a new process can go on,
2 wrong usage.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main

from diag_exporter import __version__
from diag_exporter.sessions.proxy import proxy
from diag_exporter.settings import DEFAULT_LISTEN, Settings, SettingsError, merged

__all__ = ["app", "main"]

app = typer.Typer(
    name="diag-exporter",
    help="GPUs, engines and sessions for Prometheus: what decides most LLM incidents and nobody exports.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Listen = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help=f"Where to serve (default {DEFAULT_LISTEN}).")
]
WebConfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="TLS and basic auth, in the format of Prometheus' web-config.yml."),
]
ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="minimal, default or full: how much to export."),
]
On = Annotated[
    list[str] | None, typer.Option(metavar="COLLECTOR", help="Export all of this collector. Repeatable.")
]
Off = Annotated[
    list[str] | None, typer.Option(metavar="COLLECTOR", help="Leave this collector out. Repeatable.")
]
Fast = Annotated[float | None, typer.Option(metavar="SECONDS", help="Interval of clocks, heat, power (1).")]
Slow = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Interval of processes, ECC, links, facts (15).")
]
StaleAfter = Annotated[
    float | None, typer.Option(metavar="N", help="Stop serving what is older than N intervals (10).")
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="TOML file with these options as keys; SIGHUP reads it again."),
]
Top = Annotated[
    int | None, typer.Option(metavar="N", help="Processes or tenants with a series of their own (10).")
]
Gpus = Annotated[int | None, typer.Option(metavar="N", help="How many GPUs there should be.")]
Own = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Processes that are the engine; others are foreign. Repeatable."),
]
EngineUrl = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        metavar="[NAME=]URL",
        help="A vLLM or SGLang server to ask, and how to label it. Repeatable.",
    ),
]
EngineToken = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Holds the engines' API key (vLLM's --api-key).")
]
EngineLog = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="The engine's own log, followed. Repeatable.")
]
Log = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="A request log to follow (JSON lines). Repeatable.")
]
Preset = Annotated[
    str | None, typer.Option(metavar="NAME", help="How to read --log: plain, litellm or nginx.")
]
LogField = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=PATH", help="Where plain lines have it: session=meta.chat. Repeatable."),
]
FromStart = Annotated[bool | None, typer.Option("--from-start", help="Also count what --log already holds.")]
Otlp = Annotated[
    str | None, typer.Option("--otlp-listen", metavar="HOST:PORT", help="Receive OTLP/HTTP traces here.")
]
SessionInId = Annotated[
    bool | None,
    typer.Option("--session-in-request-id", help="Request ids in traces are SESSION-NUMBER."),
]
MaxSessions = Annotated[
    int | None, typer.Option(metavar="N", help="Sessions to remember (100000; some 200 bytes each).")
]
Active = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="A session is active this long after a request (900)."),
]
SessionKey = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Key of the session hash (mode 0600; made if missing).")
]
ProxyListen = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Run the proxy here; needs --upstream.")
]
Upstream = Annotated[str | None, typer.Option(metavar="URL", help="The engine behind the proxy.")]
ProxyWorkers = Annotated[
    int | None, typer.Option(metavar="N", help="Processes of the proxy that share its port (1).")
]
TenantHeader = Annotated[
    str | None, typer.Option(metavar="NAME", help="Header that tells the proxy the tenant (x-tenant-id).")
]
IncludeUsage = Annotated[
    bool | None,
    typer.Option("--include-usage", help="Have streams tell the proxy token counts, unseen by clients."),
]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"diag-exporter {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise typer.Exit(2)


@app.command(short_help="This node's GPUs.")
def gpu(
    listen: Listen = None,
    web_config: WebConfig = None,
    profile: ProfileOption = None,
    on: On = None,
    off: Off = None,
    fast: Fast = None,
    slow: Slow = None,
    stale_after: StaleAfter = None,
    top: Top = None,
    gpus: Gpus = None,
    own: Own = None,
    config: Config = None,
) -> None:
    """Export this node's GPUs: clocks, throttle time, processes and their owners, Xids, links."""
    _serve(("gpu",), locals())


@app.command(short_help="What an engine's own metrics leave out.")
def engine(
    engine: EngineUrl = None,
    engine_token: EngineToken = None,
    engine_log: EngineLog = None,
    listen: Listen = None,
    web_config: WebConfig = None,
    profile: ProfileOption = None,
    on: On = None,
    off: Off = None,
    slow: Slow = None,
    stale_after: StaleAfter = None,
    config: Config = None,
) -> None:
    """Export what an engine's own metrics leave out: limits, versions, health, start-up facts."""
    _serve(("engine",), locals())


@app.command(short_help="Sessions and tenants, from logs, traces or a proxy.")
def sessions(
    log: Log = None,
    preset: Preset = None,
    log_field: LogField = None,
    from_start: FromStart = None,
    engine_log: EngineLog = None,
    otlp_listen: Otlp = None,
    session_in_request_id: SessionInId = None,
    session_key: SessionKey = None,
    max_sessions: MaxSessions = None,
    active: Active = None,
    proxy_listen: ProxyListen = None,
    upstream: Upstream = None,
    proxy_workers: ProxyWorkers = None,
    tenant_header: TenantHeader = None,
    include_usage: IncludeUsage = None,
    top: Top = None,
    listen: Listen = None,
    web_config: WebConfig = None,
    profile: ProfileOption = None,
    on: On = None,
    off: Off = None,
    fast: Fast = None,
    slow: Slow = None,
    stale_after: StaleAfter = None,
    config: Config = None,
) -> None:
    """Export who is active, how long their context is, and what is lost: from logs, traces or a proxy."""
    _serve(("sessions",), locals())


@app.command(name="all", short_help="All three on one box.")
def everything(
    engine: EngineUrl = None,
    engine_token: EngineToken = None,
    engine_log: EngineLog = None,
    log: Log = None,
    preset: Preset = None,
    log_field: LogField = None,
    from_start: FromStart = None,
    otlp_listen: Otlp = None,
    session_in_request_id: SessionInId = None,
    session_key: SessionKey = None,
    max_sessions: MaxSessions = None,
    active: Active = None,
    proxy_listen: ProxyListen = None,
    upstream: Upstream = None,
    proxy_workers: ProxyWorkers = None,
    tenant_header: TenantHeader = None,
    include_usage: IncludeUsage = None,
    top: Top = None,
    gpus: Gpus = None,
    own: Own = None,
    listen: Listen = None,
    web_config: WebConfig = None,
    profile: ProfileOption = None,
    on: On = None,
    off: Off = None,
    fast: Fast = None,
    slow: Slow = None,
    stale_after: StaleAfter = None,
    config: Config = None,
) -> None:
    """All three on one box. A part without anything to read (no --engine, no --log) stays silent."""
    _serve(("gpu", "engine", "sessions"), locals())


@app.command(short_help="A page of made-up GPUs.")
def demo(
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What the made-up GPUs do; default: a scripted hour.")
    ] = None,
    listen: Listen = None,
    web_config: WebConfig = None,
    fast: Fast = None,
    slow: Slow = None,
    config: Config = None,
) -> None:
    """Serve a page of made-up GPUs, one of them hot and one shared, on a machine without any."""
    _serve(("demo",), locals())


app.command(short_help="The proxy alone, writing request records.")(proxy)


def _serve(parts: Sequence[str], flags: Mapping[str, Any]) -> None:
    """Read settings, listen, sample, serve; return when told to stop."""
    from diag_exporter.assembly import Running
    from diag_exporter.serve import run

    config = flags.get("config")
    given = {name: value for name, value in flags.items() if name != "config"}

    def settings() -> Settings:
        return merged(given, config)

    running = Running(parts, settings())
    if not running.guarded:
        print(
            "diag-exporter: the page is open to whoever reaches this address; --web-config can guard it",
            file=sys.stderr,
        )
    print(
        f"diag-exporter {__version__}: {', '.join(running.parts)} on {running.server.url}/metrics",
        file=sys.stderr,
    )
    if not run(running.server, lambda: running.reload(settings())):
        # Its thread is a daemon, so the process can end; but the operator should know why it was slow.
        raise SettingsError("stopped, but a driver call was still hanging")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``diag-exporter`` with ``arguments`` (default: those of the process) and exit with its code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    command = typer.main.get_command(app)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = command.main(given, prog_name="diag-exporter", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except SettingsError as error:
        code = _complain(str(error), 1)
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        # The command parser's errors have no common public class across typer's releases.
        message = getattr(error, "format_message", None)
        if not callable(message):
            raise
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(message() or (context.get_help() if context else ""))
            code = 0
        else:
            path = context.command_path if context is not None else "diag-exporter"
            code = _complain(f"{str(message()).rstrip('.')}; see `{path} --help`", 2)
    raise SystemExit(code)


def _complain(text: str, code: int) -> int:
    print(f"diag-exporter: {' '.join(text.split())}", file=sys.stderr)
    return code
