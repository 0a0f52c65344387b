"""Spans of engines into events: OTLP traces in JSON or protobuf.

vLLM (``--otlp-traces-endpoint``) sends one ``llm_request`` span per *finished* request: tokens, times,
the request's id; no model, no session, no cached tokens, and nothing for a request that was aborted.
SGLang's spans carry the same attributes and cached tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from diag_exporter.engine.lengths import only_model
from diag_exporter.sessions.events import Event
from diag_exporter.sessions.feeds.presets import bare_id, request_hash
from diag_exporter.sessions.identity import Identifier

__all__ = ["NoProtobuf", "SpanReader", "Spans"]

_ENGINE_SUFFIX = re.compile(r"-[0-9a-f]{8}$")
_PROMPT_SUFFIX = re.compile(r"^(cmpl-.+)-\d+$")
_TURN_SUFFIX = re.compile(r"^(.+)-\d+$")
_SESSIONS = ("session.id", "gen_ai.conversation.id")

Spans = list[tuple[Event, int]]


class NoProtobuf(Exception):
    """Protobuf came and nothing here can read it."""


class SpanReader:
    """Turns export requests into events (each with the hash of its id's other spelling).

    ``session_in_id``: the gateway sets ``X-Request-Id`` to ``<session>-<number>``; the part before
    the number is then the session. ``model``: whose span it is that names none (by default of the one
    model that the engines asked by this exporter serve, if it is one).
    """

    def __init__(
        self, identifier: Identifier, *, session_in_id: bool = False, model: Callable[[], str] = only_model
    ) -> None:
        self._identifier = identifier
        self._model = model
        self._session_in_id = session_in_id

    def read_json(self, body: bytes) -> Spans:
        """Raises ``ValueError`` when ``body`` is no export request."""
        try:
            whole = json.loads(body)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if not isinstance(whole, dict) or not isinstance(whole.get("resourceSpans", []), list):
            raise ValueError("not an export request")
        return self._events(_json_spans(whole))

    def read_protobuf(self, body: bytes) -> Spans:
        """Raises ``ValueError`` likewise, ``NoProtobuf`` without the package opentelemetry-proto."""
        try:
            from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
        except ImportError:
            raise NoProtobuf from None
        try:
            request = ExportTraceServiceRequest.FromString(body)
        except Exception:  # protobuf's DecodeError, of which no types are published
            raise ValueError("not an export request") from None
        return self._events(_protobuf_spans(request))

    def _events(self, spans: Iterable[tuple[dict[str, object], dict[str, object], int, int]]) -> Spans:
        return [found for span in spans if (found := self._event(*span)) is not None]

    def _event(
        self, held: Mapping[str, object], resource: Mapping[str, object], start: int, end: int
    ) -> tuple[Event, int] | None:
        if "gen_ai.request.id" not in held and "gen_ai.usage.completion_tokens" not in held:
            return None  # a start-up span, or somebody else's
        name = _text(held.get("gen_ai.request.id"))
        # Engines append eight digits of their own, and to completions the number of the prompt.
        shorter = _PROMPT_SUFFIX.sub(r"\1", _ENGINE_SUFFIX.sub("", name))
        session, source = self._session(held, shorter)
        elapsed = (end - start) / 1e9 if 0 < start <= end else None
        duration = _number(held.get("gen_ai.latency.e2e"))
        event = Event(
            ts=start / 1e9,
            model=_text(held.get("gen_ai.response.model") or held.get("gen_ai.request.model"))
            or self._model(),
            session=session,
            session_source=source,
            prompt_tokens=_tokens(held, "prompt_tokens", "input_tokens"),
            cached_tokens=_tokens(held, "cached_tokens"),
            output_tokens=_tokens(held, "completion_tokens", "output_tokens"),
            ttft_seconds=_number(held.get("gen_ai.latency.time_to_first_token")),
            queue_seconds=_number(held.get("gen_ai.latency.time_in_queue")),
            duration_seconds=elapsed if duration is None else duration,
            instance=_text(resource.get("k8s.pod.name") or resource.get("host.name")),
            request=request_hash(name),
        )
        return event, request_hash(shorter) if shorter != name else 0

    def _session(self, held: Mapping[str, object], request_id: str) -> tuple[int | None, str]:
        for key in _SESSIONS:
            if text := _text(held.get(key)):
                return self._identifier.hash(text), "log"
        if self._session_in_id and (match := _TURN_SUFFIX.match(request_id)):
            return self._identifier.hash(bare_id(match[1])), "request_id"
        return None, "none"


def _json_spans(whole: dict[str, Any]) -> Iterator[tuple[dict[str, object], dict[str, object], int, int]]:
    for resource_spans in _dicts(whole.get("resourceSpans")):
        resource = resource_spans.get("resource")
        about = _attributes(resource.get("attributes")) if isinstance(resource, dict) else {}
        for scope_spans in _dicts(resource_spans.get("scopeSpans")):
            for span in _dicts(scope_spans.get("spans")):
                start, end = _whole(span.get("startTimeUnixNano")), _whole(span.get("endTimeUnixNano"))
                yield _attributes(span.get("attributes")), about, start, end


def _protobuf_spans(request: Any) -> Iterator[tuple[dict[str, object], dict[str, object], int, int]]:
    for resource_spans in request.resource_spans:
        about = _values(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield (
                    _values(span.attributes), about, span.start_time_unix_nano, span.end_time_unix_nano,
                )  # fmt: skip


def _values(pairs: Any) -> dict[str, object]:
    return {
        pair.key: getattr(pair.value, kind)
        for pair in pairs
        if (kind := pair.value.WhichOneof("value")) is not None
    }


def _attributes(pairs: object) -> dict[str, object]:
    held: dict[str, object] = {}
    for pair in _dicts(pairs):
        key, value = pair.get("key"), pair.get("value")
        if isinstance(key, str) and isinstance(value, dict) and value:
            held[key] = next(iter(value.values()))
    return held


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value[:512] if isinstance(value, str) else ""


def _whole(value: object) -> int:
    """Nanoseconds; OTLP/JSON writes 64-bit numbers as strings."""
    try:
        return max(int(value), 0) if isinstance(value, int | str) else 0
    except ValueError:
        return 0


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number <= 1e12 else None


def _tokens(held: Mapping[str, object], *names: str) -> int | None:
    for name in names:
        number = _number(held.get(f"gen_ai.usage.{name}"))
        if number is not None:
            return int(number)
    return None
