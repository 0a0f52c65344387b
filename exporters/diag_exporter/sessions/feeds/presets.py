"""How gateways spell a request, field by field.

Sources: LiteLLM's StandardLoggingPayload; nginx's log, core and upstream module variables in a
``log_format … escape=json``. Values of the wrong kind or size count as not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from diag_exporter.sessions.events import Event, Status
from diag_exporter.sessions.identity import Identifier

__all__ = ["PLAIN_FIELDS", "PRESETS", "Preset", "Skip", "Unusable", "bare_id", "plain_event", "request_hash"]

PLAIN_FIELDS = (
    "ts", "session", "tenant", "model", "instance", "request_id", "prompt_tokens", "cached_tokens",
    "output_tokens", "ttft_seconds", "queue_seconds", "duration_seconds", "status", "session_source",
    "tokens_after_abort", "repeated_tokens",
)  # fmt: skip
"""The fields of a plain line, named like ``Event``'s; times in unix or ISO 8601, durations in seconds."""

Preset = Callable[[Mapping[str, object], Identifier], Event]

_TOKENS_MAX = 1 << 40
_SECONDS_MAX = 1e9
_NAME_CHARS_MAX = 512
_KINDS = ("chatcmpl-", "cmpl-", "resp-", "embd-", "pool-", "score-", "rerank-")
_NOT_INFERENCE = ("/metrics", "/health", "/ping", "/tokenize", "/detokenize", "/v1/models", "/version")
_OK_WORDS = frozenset(("ok", "success", "succeeded", "stop", "length", "complete", "completed"))
_ABORT_WORDS = frozenset(("aborted", "abort", "cancelled", "canceled", "client_closed", "disconnected"))


class Unusable(Exception):
    """The line cannot be used; the message says why and never quotes it."""


class Skip(Exception):
    """The line is fine, and tells of no inference request."""


def plain_event(row: Mapping[str, object], identifier: Identifier) -> Event:
    """A line whose fields are named like ``PLAIN_FIELDS``. Raises ``Unusable`` without a time."""
    session = _name(row.get("session"))
    source = _name(row.get("session_source")) or "log"
    return Event(
        ts=_required(_moment(row.get("ts"))),
        model=_name(row.get("model")),
        tenant=_name(row.get("tenant")),
        session=identifier.hash(session) if session else None,
        session_source=source if session else "none",
        prompt_tokens=_count(row.get("prompt_tokens")),
        cached_tokens=_count(row.get("cached_tokens")),
        output_tokens=_count(row.get("output_tokens")),
        ttft_seconds=_seconds(row.get("ttft_seconds")),
        queue_seconds=_seconds(row.get("queue_seconds")),
        duration_seconds=_seconds(row.get("duration_seconds")),
        status=_status(row.get("status")),
        tokens_after_abort=_count(row.get("tokens_after_abort")),
        instance=_name(row.get("instance")),
        repeated_tokens=_count(row.get("repeated_tokens")),
        request=request_hash(_name(row.get("request_id"))),
    )


def request_hash(request_id: str) -> int:
    """A number for joining, of this process only (Python salts it); 0 for no id.

    Engines put the kind of request in front of the id they were given; gateways log either."""
    return hash(bare_id(request_id)) or 1 if request_id else 0


def bare_id(request_id: str) -> str:
    """``request_id`` without its kind."""
    return request_id.partition("-")[2] if request_id.startswith(_KINDS) else request_id


# --- LiteLLM ------------------------------------------------------------------------------------


def _litellm(outer: Mapping[str, object], identifier: Identifier) -> Event:
    row = outer
    for name in ("standard_logging_object", "standard_logging_payload"):
        inner = outer.get(name)
        if isinstance(inner, dict):
            row = inner
    if str(row.get("cache_hit")).lower() == "true":
        raise Skip  # answered by the gateway's own cache: no engine saw it
    start, end = _required(_moment(row.get("startTime"))), _moment(row.get("endTime"))
    status = _litellm_status(row)
    session, source = _first_named(
        row,
        ("metadata.session_id",
         ("session_id", "metadata.session_id", "metadata.requester_metadata.session_id")),
        ("user", ("end_user", "metadata.user_api_key_end_user_id")),
    )  # fmt: skip
    tenant, _ = _first_named(
        row,
        ("", ("metadata.user_api_key_team_alias", "metadata.user_api_key_team_id", "team_id",
              "metadata.user_api_key_alias", "end_user", "metadata.user_api_key_hash")),
    )  # fmt: skip
    return Event(
        ts=start,
        model=_name(row.get("model_group")) or _name(row.get("model")),
        tenant=tenant,
        session=identifier.hash(session) if session else None,
        session_source=source,
        prompt_tokens=_used(row, "prompt_tokens", status),
        cached_tokens=_litellm_cached(row),
        output_tokens=_used(row, "completion_tokens", status),
        ttft_seconds=_litellm_ttft(row, start, end),
        duration_seconds=_between(start, end),
        status=status,
        instance=_host(_name(row.get("api_base"))),
        request=request_hash(_name(row.get("request_id")) or _name(row.get("id"))),
    )


def _litellm_status(row: Mapping[str, object]) -> Status:
    code = _status(_dig(row, "error_information.error_code") or "ok")
    return "aborted" if code == "aborted" else _status(row.get("status"))


def _litellm_cached(row: Mapping[str, object]) -> int | None:
    for place in ("metadata.usage_object", "metadata.additional_usage_values", "usage"):
        held = _count(_dig(row, f"{place}.prompt_tokens_details.cached_tokens"))
        if held is not None:
            return held
    return None


def _litellm_ttft(row: Mapping[str, object], start: float, end: float | None) -> float | None:
    first = _moment(row.get("completionStartTime"))
    # An answer that was not streamed carries its end here: no first token was seen.
    return None if first is None or first == end or row.get("stream") is False else _between(start, first)


def _used(row: Mapping[str, object], name: str, status: Status) -> int | None:
    # LiteLLM writes 0 where a call failed before its usage was known.
    held = _count(row.get(name))
    return None if held == 0 and status != "ok" else held


# --- nginx --------------------------------------------------------------------------------------


def _nginx(row: Mapping[str, object], identifier: Identifier) -> Event:
    words = str(row.get("request") or "").split()
    method = str(row.get("request_method") or (words[0] if words else "POST"))
    path = str(row.get("request_uri") or row.get("uri") or (words[1] if len(words) > 1 else ""))
    if method != "POST" or path.partition("?")[0] in _NOT_INFERENCE:
        raise Skip
    duration = _seconds(row.get("request_time"))
    written = _required(_moment(row.get("msec")) or _moment(row.get("time_iso8601")))
    session, source = _first_named(
        row,
        ("x-session-id", ("http_x_session_id",)),
        ("x-session-affinity", ("http_x_session_affinity",)),
        ("log", ("session",)),
    )
    tenant, _ = _first_named(row, ("", ("http_x_tenant_id", "http_x_tenant", "tenant", "remote_user")))
    status = _status(row.get("status"))
    # A client that leaves once the headers are out keeps its 200: only this variable tells.
    if status == "ok" and "request_completion" in row and row["request_completion"] != "OK":
        status = "aborted"
    return Event(
        ts=written - (duration or 0.0),  # nginx writes the line when the request ends
        model=_said(row, "http_x_model") or _said(row, "model"),
        tenant=tenant,
        session=identifier.hash(session) if session else None,
        session_source=source,
        duration_seconds=duration,
        status=status,
        instance=_last_address(_said(row, "upstream_addr")),
        request=request_hash(_said(row, "request_id") or _said(row, "http_x_request_id")),
    )


def _last_address(text: str) -> str:
    """Who answered, of all upstreams that were tried ("a:80, b:80", "a:80 : b:80")."""
    tried = [part for part in text.replace(" : ", ", ").split(", ") if part not in ("", "-")]
    return tried[-1] if tried else ""


PRESETS: dict[str, Preset] = {"plain": plain_event, "litellm": _litellm, "nginx": _nginx}
"""Preset by name."""


# --- values -------------------------------------------------------------------------------------


def _first_named(row: Mapping[str, object], *sources: tuple[str, tuple[str, ...]]) -> tuple[str, str]:
    for source, paths in sources:
        for path in paths:
            name = _name(_dig(row, path))
            if name not in ("", "-"):
                return name, source
    return "", "none"


def _said(row: Mapping[str, object], name: str) -> str:
    held = _name(row.get(name))
    return "" if held == "-" else held


def _dig(row: object, path: str) -> object:
    for part in path.split("."):
        if not isinstance(row, Mapping):
            return None
        row = row.get(part)
    return row


def _name(value: object) -> str:
    if isinstance(value, str):
        return value if len(value) <= _NAME_CHARS_MAX else ""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _count(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number <= _TOKENS_MAX else None


def _seconds(value: object) -> float | None:
    number = _number(value)
    return number if number is not None and 0 <= number <= _SECONDS_MAX else None


def _moment(value: object) -> float | None:
    """Unix seconds of a number (seconds, or milliseconds when it is that large) or of ISO 8601."""
    number = _number(value)
    if number is not None:
        return None if number <= 0 else number / 1e3 if number > 1e11 else number
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _required(moment: float | None) -> float:
    if moment is None:
        raise Unusable("no time")
    return moment


def _between(start: float, end: float | None) -> float | None:
    return None if end is None or end < start else end - start


def _status(value: object) -> Status:
    """``ok``, ``error`` or ``aborted`` of a word or an HTTP status; nothing said counts as ok."""
    if value is None or value == "":
        return "ok"
    code = _number(value)
    if code is not None:
        return "aborted" if code == 499 else "ok" if code < 400 else "error"
    word = str(value).lower()
    return "ok" if word in _OK_WORDS else "aborted" if word in _ABORT_WORDS else "error"


def _host(address: str) -> str:
    """Host and port of a URL, without credentials."""
    return address.partition("//")[2].partition("/")[0].rpartition("@")[2] if "//" in address else address
