"""From options as typed to the question that sources understand."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diag.cli.config import Defaults
from diag.cli.options import Asked
from diag.cli.times import duration_seconds, moment
from diag.errors import UsageError

if TYPE_CHECKING:
    from diag.model import Window
    from diag.signals.algebra import Matcher
    from diag.sources.access import Access
    from diag.sources.protocol import Question

__all__ = ["access", "live_seconds", "question", "references"]

_SCRAPE_FOR_SECONDS = 120.0
_LIVE_SECONDS = 3600.0


def references(asked: Asked, defaults: Defaults) -> list[str]:
    """The sources to open; ``UsageError`` when neither the command line nor a default names one."""
    found = list(asked.sources or defaults.sources)
    if not found:
        raise UsageError(
            "no source given",
            hint="name a URL or a bundle, set DIAG_PROMETHEUS_URL, or try `diag demo`",
        )
    return found


def question(asked: Asked, defaults: Defaults, now: float) -> Question:
    """What is asked, with every time resolved against ``now`` (unix seconds)."""
    from diag.sources.protocol import Question

    window = _window(asked, now)
    baseline = _baseline(asked, now)
    mapping = asked.requests_map or defaults.requests_map
    return Question(
        now=now,
        window=window,
        baseline=baseline,
        matchers=tuple(_matcher(text) for text in asked.match or defaults.match),
        requests=_files(asked.requests, "--requests"),
        requests_map=_mapping(mapping) if mapping else {},
        requests_preset=asked.requests_preset or defaults.requests_preset,
        logs=_files(asked.log, "--log"),
        events=_files(asked.events, "--events"),
        scrape_for_seconds=_scrape_for_seconds(asked),
    )


def live_seconds(defaults: Defaults) -> float:
    """How far to look back in a live store when no window is given; a bundle is taken whole."""
    return duration_seconds(defaults.last, "last in diag.toml") if defaults.last else _LIVE_SECONDS


def access(asked: Asked, defaults: Defaults) -> Access:
    """How to get in; secrets come from files, so that no process list shows them."""
    from diag.sources.access import Access

    token = asked.bearer_token_file or defaults.bearer_token_file
    basic = asked.basic_auth_file or defaults.basic_auth_file
    timeout = asked.timeout or defaults.timeout
    if token and basic:
        raise UsageError(
            "both --bearer-token-file and --basic-auth-file are given", hint="a server takes one of them"
        )
    key = asked.client_key or defaults.client_key
    certificate = asked.client_cert or defaults.client_cert
    if key and not certificate:
        raise UsageError("--client-key needs --client-cert")
    authority = asked.ca_file or defaults.ca_file
    for path, option in ((certificate, "--client-cert"), (key, "--client-key"), (authority, "--ca-file")):
        if path:
            _file(path, option)
    return Access(
        headers={**defaults.headers, **dict(_header(text) for text in asked.header or ())},
        bearer_token=_secret(token, "--bearer-token-file") if token else None,
        basic=_basic(basic) if basic else None,
        client_cert=certificate,
        client_key=key,
        ca_file=authority,
        timeout_seconds=duration_seconds(timeout, "--timeout") if timeout else 30.0,
    )


def _scrape_for_seconds(asked: Asked) -> float:
    return duration_seconds(asked.scrape_for, "--for") if asked.scrape_for else _SCRAPE_FOR_SECONDS


def _window(asked: Asked, now: float) -> Window | None:
    from diag.model import Window

    if asked.last and (asked.start or asked.end):
        raise UsageError("--last and --from/--to exclude each other", hint="give one of them")
    if asked.end and not asked.start:
        raise UsageError("--to needs --from", hint="say where the window starts, or use --last 2h")
    if asked.start:
        end = moment(asked.end, "--to") if asked.end else now
        return _ordered(moment(asked.start, "--from"), end, now, "--from", "--to")
    return Window(now - duration_seconds(asked.last, "--last"), now) if asked.last else None


def _baseline(asked: Asked, now: float) -> Window | None:
    if not asked.baseline_start and not asked.baseline_end:
        return None
    if not asked.baseline_start or not asked.baseline_end:
        raise UsageError("--baseline-from and --baseline-to belong together", hint="give both")
    start = moment(asked.baseline_start, "--baseline-from")
    end = moment(asked.baseline_end, "--baseline-to")
    return _ordered(start, end, now, "--baseline-from", "--baseline-to")


def _ordered(start: float, end: float, now: float, first: str, second: str) -> Window:
    from diag.model import Window

    if start > now:
        raise UsageError(f"{first} lies {_ahead(start - now)} in the future", hint="check the time zone")
    if end <= start:
        raise UsageError(f"{second} is not after {first}", hint="swap them?")
    return Window(start, min(end, now)) if end > now else Window(start, end)


def _ahead(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def _matcher(text: str) -> Matcher:
    from diag.signals.algebra import Matcher

    for position, character in enumerate(text):
        if character in "=!":
            label, rest = text[:position].strip(), text[position:]
            break
    else:
        raise UsageError(f"--match {text!r} has no =", hint="write label=value, such as namespace=prod")
    if not label.replace("_", "a").isalnum() or not label.isascii() or label[0].isdigit():
        raise UsageError(f"--match {text!r}: {label!r} is no label name", hint="write label=value")
    if rest.startswith("=~"):
        return _regular(Matcher(label, "=~", _unquoted(rest[2:])), text)
    if rest.startswith("!~"):
        return _regular(Matcher(label, "!~", _unquoted(rest[2:])), text)
    if rest.startswith("!="):
        return Matcher(label, "!=", _unquoted(rest[2:]))
    if rest.startswith("!"):
        raise UsageError(f"--match {text!r} has no =", hint="write label!=value or label!~pattern")
    return Matcher(label, "=", _unquoted(rest[1:]))


def _regular(matcher: Matcher, text: str) -> Matcher:
    import re

    try:
        re.compile(matcher.value)
    except re.error as error:
        raise UsageError(f"--match {text!r} is no regular expression: {error}") from None
    return matcher


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value


def _mapping(text: str) -> dict[str, str]:
    pairs = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        field, separator, path = part.partition("=")
        if not separator or not field.strip() or not path.strip():
            raise UsageError(
                f"--requests-map {part!r} is no pair",
                hint="write prompt_tokens=usage.prompt_tokens,session=user",
            )
        pairs[field.strip()] = path.strip()
    return pairs


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator or not name.strip() or "\n" in text or "\r" in text:
        # The text itself may be a secret.
        raise UsageError("a --header is not of the form KEY:VALUE")
    return name.strip(), value.strip()


def _files(paths: Sequence[str] | None, option: str) -> tuple[Path, ...]:
    return tuple(_file(path, option) for path in paths or ())


def _file(path: str, option: str) -> Path:
    found = Path(os.path.expanduser(path))
    if not found.is_file():
        what = "is a folder" if found.is_dir() else "does not exist"
        raise UsageError(f"{option} {path}: the file {what}", hint="check the path")
    return found


def _secret(path: str, option: str) -> str:
    try:
        text = _file(path, option).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        raise UsageError(f"{option} {path} cannot be read") from None
    if not text or "\n" in text:
        raise UsageError(f"{option} {path} does not hold exactly one line")
    return text


def _basic(path: str) -> tuple[str, str]:
    user, separator, password = _secret(path, "--basic-auth-file").partition(":")
    if not separator:
        raise UsageError(f"--basic-auth-file {path} does not hold user:password")
    return user, password
