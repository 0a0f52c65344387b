"""Which headers go on, and which requests are turned away before anything is sent.

What leaves is built anew from parsed names and values, with a length or chunking of its own: the
client's framing never reaches the engine, so two parsers cannot disagree on where a request ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["forwarded", "refusal", "request_id", "returned"]

# Of one connection only (RFC 9110 §7.6.1), and the framing, which each side makes its own.
_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_SENT_ON = _HOP | {"content-length", "expect", "host"}
_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


def _nominated(values: Iterable[str]) -> set[str]:
    """Names that ``Connection`` declares to be of this connection only."""
    return {name.strip().lower() for value in values for name in value.split(",")}


def forwarded(pairs: Iterable[tuple[str, str]], connection: list[str]) -> list[tuple[str, str]] | None:
    """Request headers for the upstream, in order and with repetitions.

    None when a value cannot be passed on as it is: aiohttp leaves out bytes that are no UTF-8, so that
    ``adm<ff>in`` would reach the engine as ``admin``.
    """
    drop: frozenset[str] | set[str] = _NOT_SENT_ON
    if connection:
        drop = _NOT_SENT_ON | _nominated(connection)
    kept = [(name, value) for name, value in pairs if name.lower() not in drop]
    return kept if all(value.isascii() or _is_text(value) for _, value in kept) else None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def returned(
    pairs: Iterable[tuple[str, str]], connection: list[str], keep_length: bool
) -> list[tuple[str, str]]:
    """Answer headers for the client. ``keep_length`` False where it does not hold."""
    drop: frozenset[str] | set[str] = _HOP
    if connection:
        drop = _HOP | _nominated(connection)
    if not keep_length:
        drop = drop | {"content-length"}
    return [(name, value) for name, value in pairs if name.lower() not in drop]


def refusal(method: str, target: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Status and reason when a request is not for this proxy, else None."""
    if method in ("CONNECT", "TRACE"):
        return 405, f"{method} is not passed on"
    if not target.startswith("/") and not (target == "*" and method == "OPTIONS"):
        # An absolute target names a server; this proxy has one upstream and asks nobody else.
        return 400, "the request's target must be a path"
    if "upgrade" in headers:
        return 501, "connections are not upgraded"
    expect = headers.get("expect")
    if expect is not None and expect.lower() != "100-continue":
        return 417, "only 100-continue can be expected"
    return None


def request_id(sent: str | None) -> str | None:
    """The client's request id where it is one; None where it is absent or anything else."""
    return sent if sent is not None and _SANE_ID.fullmatch(sent) else None
