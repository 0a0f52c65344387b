"""The options that commands share, declared once and handed over as records."""

# ruff: noqa: E501  (one option a line: a table that wraps cannot be read)
# fmt: off
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

__all__ = ["Answer", "Asked", "Debug", "Reach", "with_options"]

Debug = Annotated[bool, typer.Option("--debug", help="show the traceback of an error")]
_Texts = list[str] | None
_Text = str | None
_Last = Annotated[_Text, typer.Option("--last", metavar="2h", help="look at this long until now")]
_From = Annotated[_Text, typer.Option("--from", metavar="T", help="start of the window, ISO 8601 with zone or unix seconds")]
_To = Annotated[_Text, typer.Option("--to", metavar="T", help="end of the window (default: now)")]
_Header = Annotated[_Texts, typer.Option("--header", metavar="KEY:VALUE", help="sent with every call, such as X-Scope-OrgID:team (repeatable)")]
_TokenFile = Annotated[_Text, typer.Option("--bearer-token-file", metavar="FILE", help="file that holds a bearer token")]
_BasicFile = Annotated[_Text, typer.Option("--basic-auth-file", metavar="FILE", help="file that holds user:password")]
_ClientCert = Annotated[_Text, typer.Option("--client-cert", metavar="FILE", help="client certificate, PEM")]
_ClientKey = Annotated[_Text, typer.Option("--client-key", metavar="FILE", help="its key, PEM")]
_Authority = Annotated[_Text, typer.Option("--ca-file", metavar="FILE", help="certificate authority to trust, PEM")]
_Timeout = Annotated[_Text, typer.Option("--timeout", metavar="30s", help="longest wait for one answer of a server")]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to look at: sources, window, records, and how to get in. All as typed."""

    sources: Annotated[_Texts, typer.Argument(metavar="SOURCE...", help="URL of a Prometheus-compatible API or of a /metrics page, or path of a bundle", show_default=False)] = None
    last: _Last = None
    start: _From = None
    end: _To = None
    baseline_start: Annotated[_Text, typer.Option("--baseline-from", metavar="T", help="start of a time that was healthy")] = None
    baseline_end: Annotated[_Text, typer.Option("--baseline-to", metavar="T", help="end of that time")] = None
    match: Annotated[_Texts, typer.Option("--match", metavar="LABEL=VALUE", help="only series with this label (repeatable; also != =~ !~)")] = None
    requests: Annotated[_Texts, typer.Option("--requests", metavar="FILE", help="request records or gateway log (repeatable)")] = None
    requests_map: Annotated[_Text, typer.Option("--requests-map", metavar="FIELD=PATH,...", help="where the log keeps each field")] = None
    requests_preset: Annotated[_Text, typer.Option("--requests-preset", metavar="NAME", help="jsonl, litellm, nginx or vllm_spans (default: guessed)")] = None
    log: Annotated[_Texts, typer.Option("--log", metavar="FILE", help="engine or kernel log (repeatable)")] = None
    events: Annotated[_Texts, typer.Option("--events", metavar="FILE", help="deploys and changes, one JSON object a line (repeatable)")] = None
    scrape_for: Annotated[_Text, typer.Option("--for", metavar="2m", help="how long to scrape bare pages")] = None
    header: _Header = None
    bearer_token_file: _TokenFile = None
    basic_auth_file: _BasicFile = None
    client_cert: _ClientCert = None
    client_key: _ClientKey = None
    ca_file: _Authority = None
    timeout: _Timeout = None


@dataclass(frozen=True, slots=True)
class Reach:
    """A window of one store, and how to get in: the part of ``Asked`` that fits where nothing is triaged."""

    last: _Last = None
    start: _From = None
    end: _To = None
    header: _Header = None
    bearer_token_file: _TokenFile = None
    basic_auth_file: _BasicFile = None
    client_cert: _ClientCert = None
    client_key: _ClientKey = None
    ca_file: _Authority = None
    timeout: _Timeout = None

    def asked(self, source: str | None) -> Asked:
        """It as a full question about ``source``."""
        return Asked(
            sources=[source] if source else None,
            **{entry.name: getattr(self, entry.name) for entry in fields(self)},
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """Where the answer goes and how it looks."""

    output: Annotated[_Text, typer.Option("-o", "--output", metavar="FILE", help="write the answer to a file")] = None
    format: Annotated[_Text, typer.Option("-f", "--format", metavar="FORMAT", help="console, json, markdown or html (default: by the file's ending, else console)")] = None
    json: Annotated[bool, typer.Option("--json", help="short for --format json")] = False
    top: Annotated[int | None, typer.Option("--top", metavar="N", min=1, help="causes told in full (default: 3)")] = None


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``function`` take ``Asked`` and ``Answer`` records while the command line sees options.

    Parameters annotated with a dataclass are replaced by its fields."""
    hints = get_type_hints(function, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            parameters += _expanded(groups[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(function)
    def command(**given: Any) -> Any:
        packed = {
            name: group(**{entry.name: given.pop(entry.name) for entry in fields(group)})
            for name, group in groups.items()
        }
        return function(**packed, **given)

    signature = inspect.Signature(parameters)
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    del command.__wrapped__
    return command


def _expanded(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            entry.name, inspect.Parameter.KEYWORD_ONLY, default=entry.default, annotation=hints[entry.name]
        )
        for entry in fields(group)
    ]
