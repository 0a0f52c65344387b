"""What is read from a request: model, whether it streams, who asks. The body goes on as it came."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from diag_exporter.sessions.identity import Identifier

__all__ = ["UNREAD", "Ask", "Reader", "is_watched", "with_usage"]

# The ends of paths on which text is generated; a prefix (/v1, /openai/v1, a gateway's route) may differ.
_CHAT = ("/chat/completions", "/completions")
_WATCHED = (*_CHAT, "/responses", "/messages", "/generate")
_MODEL_CHARS = 200
_decode = json.JSONDecoder().decode
_SPLICE = b'{"stream_options":{"include_usage":true},'


@dataclass(frozen=True, slots=True)
class Ask:
    """``session``: keyed hash, None when nothing names one. ``inject``: usage may be asked for.

    ``unread``: why the body was not read ("" when it was): ``too_large``, ``budget``, ``encoded``,
    ``not_json``; then model, stream and session are unknown unless headers name them."""

    model: str = ""
    stream: bool = False
    session: int | None = None
    session_source: str = "none"
    inject: bool = False
    unread: str = ""


UNREAD = Ask()


def is_watched(method: str, path: str) -> bool:
    """Whether this request generates text, so that an event will tell of it."""
    return method == "POST" and path.endswith(_WATCHED)


class Reader:
    """Reads request bodies. ``include_usage``: streams may be asked for their usage."""

    def __init__(self, identifier: Identifier, include_usage: bool) -> None:
        self._identify = identifier.identify
        self._include_usage = include_usage

    def read(self, path: str, headers: Mapping[str, str], body: bytes, tenant: str) -> Ask:
        """Read once; nothing but counts, names and a hash is kept."""
        said, unread = _parsed(headers, body)
        session, source = self._identify(headers, said, tenant=tenant)
        model = said.get("model")
        stream = said.get("stream") is True
        return Ask(
            model=model[:_MODEL_CHARS] if isinstance(model, str) else "",
            stream=stream,
            session=session,
            session_source=source,
            # Only where the key is absent: a client that set it has decided, and no key is ever doubled.
            inject=self._include_usage
            and stream
            and path.endswith(_CHAT)
            and "stream_options" not in said
            and body[:1] == b"{",
            unread=unread,
        )


def with_usage(body: bytes) -> bytes:
    """The body, asking for usage too: spliced in behind the first brace, all else byte for byte."""
    return _SPLICE + body[1:]


def _parsed(headers: Mapping[str, str], body: bytes) -> tuple[dict[str, object], str]:
    if headers.get("content-encoding", "identity").lower() != "identity":
        return {}, "encoded"
    try:
        said = _decode(body.decode())
    except (ValueError, RecursionError):
        # Nothing of the exception is passed on: it would quote the body.
        return {}, "not_json"
    return (said, "") if isinstance(said, dict) else ({}, "not_json")
