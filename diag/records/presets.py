"""How common gateways spell a request record, and how to tell them apart.

Each preset turns one decoded line into ``{column: value}``; ``None`` instead means "fine, but no
inference request". Field names: LiteLLM's StandardLoggingPayload specification and its spend-log
table; nginx's ``ngx_http_core_module``, ``ngx_http_upstream_module`` and log-module variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from diag.records.decode import Unusable, dig, number_of, seconds_of
from diag.records.record import COLUMNS, status_of

__all__ = ["PRESETS", "Preset", "guess_preset"]

Preset = Callable[[dict[str, object]], "dict[str, object] | None"]

_TIME_LIST = re.compile(r"\s*[,:]\s*")
_ADDRESS_LIST = re.compile(r",\s*|\s+:\s+")
_LITELLM_MARKS = frozenset(("call_type", "model_group", "api_base", "completionStartTime", "response_cost"))
_UPSTREAM_TIMES = ("upstream_connect_time", "upstream_header_time", "upstream_response_time")
_NGINX_MARKS = frozenset(("request_time", "upstream_addr", *_UPSTREAM_TIMES))
_NOT_INFERENCE = frozenset(("/metrics", "/health", "/ping", "/tokenize", "/v1/models"))


def guess_preset(line: Mapping[str, object]) -> str | None:
    """The preset that ``line`` looks like, or None."""
    payload = _payload(line)
    if "resourceSpans" in line or "scopeSpans" in line or isinstance(line.get("span"), dict):
        return "vllm_spans"
    if payload is not line or ("startTime" in line and _LITELLM_MARKS & line.keys()):
        return "litellm"
    if ("msec" in line or "time_iso8601" in line) and _NGINX_MARKS & line.keys():
        return "nginx"
    return "jsonl" if "ts" in line and len(line.keys() & set(COLUMNS)) > 1 else None


def _jsonl(line: dict[str, object]) -> dict[str, object] | None:
    record = {name: line.get(name) for name in COLUMNS if name != "source"}
    record["ts"] = seconds_of(line.get("ts"))
    if isinstance(record["structured"], bool):
        record["structured"] = float(record["structured"])
    return record


def _field(line: Mapping[str, object], *names: str) -> object:
    """The first of the top-level fields that says something."""
    for name in names:
        value = line.get(name)
        if value not in (None, "", "-"):
            return value
    return None


def _first(line: Mapping[str, object], *paths: str) -> object:
    for path in paths:
        value = dig(line, path)
        if value not in (None, "", "-") and not isinstance(value, dict | list):
            return value
    return None


# --- LiteLLM ------------------------------------------------------------------------------------


def _payload(line: Mapping[str, object]) -> Mapping[str, object]:
    for name in ("standard_logging_object", "standard_logging_payload"):
        inner = line.get(name)
        if isinstance(inner, dict):
            return inner
    return line


def _litellm(outer: dict[str, object]) -> dict[str, object] | None:
    line = _payload(outer)
    if str(line.get("cache_hit")).lower() == "true":
        return None
    start, end = seconds_of(line.get("startTime")), seconds_of(line.get("endTime"))
    return {
        "ts": start,
        "session": _first(
            line, "session_id", "metadata.session_id", "metadata.requester_metadata.session_id"
        ),
        "tenant": _first(
            line, "metadata.user_api_key_team_alias", "metadata.user_api_key_team_id", "team_id", "end_user",
            "metadata.user_api_key_end_user_id", "metadata.user_api_key_alias", "user", "api_key",
            "metadata.user_api_key_hash",
        ),
        "model": _first(line, "model_group", "model"),
        "instance": _host(_first(line, "api_base", "hidden_params.api_base")),
        "request_id": _first(line, "request_id", "id"),
        "prompt_tokens": _counted(line, "prompt_tokens"),
        "cached_tokens": _first(
            line, "metadata.usage_object.prompt_tokens_details.cached_tokens",
            "metadata.additional_usage_values.prompt_tokens_details.cached_tokens",
            "usage.prompt_tokens_details.cached_tokens",
        ),
        "output_tokens": _counted(line, "completion_tokens"),
        "ttft_seconds": _litellm_ttft(line, start, end),
        "duration_seconds": end - start if start is not None and end is not None else None,
        "status": _litellm_status(line),
    }  # fmt: skip


def _litellm_ttft(line: Mapping[str, object], start: float | None, end: float | None) -> float | None:
    value = line.get("completionStartTime")
    # The specification calls it a time to first token, the proxy writes a moment: the size tells.
    if isinstance(value, int | float) and 0 < value < 1e8:
        return float(value)
    moment = seconds_of(value)
    # An answer that was not streamed carries its end here: no first token was seen.
    if moment is None or start is None or moment == end or line.get("stream") is False:
        return None
    return moment - start


def _litellm_status(line: Mapping[str, object]) -> object:
    status = _first(line, "status")
    code = status_of(_first(line, "error_information.error_code", "metadata.error_information.error_code"))
    return "aborted" if code == "aborted" else status


def _counted(line: Mapping[str, object], name: str) -> object:
    # LiteLLM writes 0 where a failed call never got its usage.
    value = line.get(name)
    return None if value == 0 and status_of(line.get("status")) != "ok" else value


def _host(address: object) -> str | None:
    if address is None:
        return None
    text = str(address)
    try:
        return urlsplit(text).netloc.rpartition("@")[2] or text if "//" in text else text
    except ValueError:
        return text


# --- nginx --------------------------------------------------------------------------------------


def _nginx(line: dict[str, object]) -> dict[str, object] | None:
    if not _is_inference(line):
        return None
    duration = number_of(line.get("request_time"))
    written = seconds_of(_field(line, "msec", "time_iso8601"))
    return {
        # nginx writes the line when the request ends.
        "ts": written - (duration or 0.0) if written is not None else None,
        "session": _field(line, "http_x_session_id", "http_x_session_affinity", "session"),
        "tenant": _field(line, "http_x_tenant_id", "http_x_tenant", "tenant", "remote_user"),
        "model": _field(line, "http_x_model", "model"),
        "instance": _last_address(line.get("upstream_addr")),
        "request_id": _field(line, "request_id", "http_x_request_id"),
        "duration_seconds": duration,
        "upstream_connect_seconds": _summed(line.get("upstream_connect_time")),
        "upstream_header_seconds": _summed(line.get("upstream_header_time")),
        "upstream_response_seconds": _summed(line.get("upstream_response_time")),
        "status": _nginx_status(line),
    }


def _last_address(value: object) -> str | None:
    """Who answered, of all upstreams that were tried."""
    if not isinstance(value, str):
        return None
    tried = (
        [part for part in _ADDRESS_LIST.split(value) if part not in ("", "-")] if " " in value else [value]
    )
    return tried[-1] if tried and tried[-1] != "-" else None


def _is_inference(line: Mapping[str, object]) -> bool:
    words = str(line.get("request") or "").split()
    method = str(line.get("request_method") or (words[0] if words else ""))
    path = str(line.get("request_uri") or line.get("uri") or (words[1] if len(words) > 1 else ""))
    return method in ("", "POST") and path.partition("?")[0] not in _NOT_INFERENCE


def _nginx_status(line: Mapping[str, object]) -> str | None:
    status = status_of(line.get("status"))
    # A client that leaves after the headers keeps its 200; only this variable tells.
    if status == "ok" and "request_completion" in line and line["request_completion"] != "OK":
        return "aborted"
    return status


def _summed(value: object) -> float | None:
    """Seconds over all upstreams that were tried: "0.010, 0.200" or "0.010 : 0.200"; "-" is unknown."""
    if not isinstance(value, str) or not ("," in value or ":" in value):
        return number_of(value)
    known = [number for part in _TIME_LIST.split(value) if (number := number_of(part)) is not None]
    return sum(known) if known else None


def _spans(_: dict[str, object]) -> dict[str, object] | None:
    raise Unusable("spans are read by read_spans")


PRESETS: dict[str, Preset] = {"jsonl": _jsonl, "litellm": _litellm, "nginx": _nginx, "vllm_spans": _spans}
"""Preset by name; ``vllm_spans`` is a marker, since one line of it can hold many requests."""
