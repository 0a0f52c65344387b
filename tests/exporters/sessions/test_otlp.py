"""Spans of vLLM and SGLang, in both encodings, over real HTTP, and what strangers may send."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import sys
from collections.abc import Iterator

import pytest

from diag_exporter.engine.lengths import learn_max_length
from diag_exporter.sessions.events import Event
from diag_exporter.sessions.feeds.otlp import NoProtobuf, SpanReader
from diag_exporter.sessions.feeds.otlp_server import OtlpReceiver, OtlpServer
from diag_exporter.sessions.feeds.presets import request_hash
from diag_exporter.sessions.feeds.state import FeedError

ATTRIBUTES = {
    "gen_ai.request.id": "chatcmpl-abc-7-0123abcd",
    "gen_ai.usage.prompt_tokens": 1200,
    "gen_ai.usage.completion_tokens": 20,
    "gen_ai.latency.time_to_first_token": 0.5,
    "gen_ai.latency.e2e": 2.5,
    "gen_ai.latency.time_in_queue": 0.1,
    "gen_ai.response.model": "qwen",
}
START, END = 1_764_453_600_000_000_000, 1_764_453_602_500_000_000


def value(held: object) -> dict:
    if isinstance(held, int):
        return {"intValue": str(held)}
    return {"doubleValue": held} if isinstance(held, float) else {"stringValue": held}


def request(attributes: dict, *more: dict) -> dict:
    spans = [
        {"name": "llm_request", "startTimeUnixNano": str(START), "endTimeUnixNano": str(END),
         "attributes": [{"key": key, "value": value(held)} for key, held in some.items()]}
        for some in (attributes, *more)
    ]  # fmt: skip
    host = [{"key": "host.name", "value": {"stringValue": "node-1"}}]
    return {"resourceSpans": [{"resource": {"attributes": host}, "scopeSpans": [{"spans": spans}]}]}


def protobuf(attributes: dict) -> bytes:
    module = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    message = module.ExportTraceServiceRequest()
    resource = message.resource_spans.add()
    pair = resource.resource.attributes.add(key="host.name")
    pair.value.string_value = "node-1"
    span = resource.scope_spans.add().spans.add(
        name="llm_request", start_time_unix_nano=START, end_time_unix_nano=END
    )
    for key, held in attributes.items():
        kind = {int: "int_value", float: "double_value", str: "string_value"}[type(held)]
        setattr(span.attributes.add(key=key).value, kind, held)
    return message.SerializeToString()


@pytest.fixture
def reader(identifier) -> SpanReader:
    return SpanReader(identifier)


def test_json_and_protobuf_say_the_same(reader: SpanReader) -> None:
    expected = Event(
        1764453600.0, "qwen", prompt_tokens=1200, output_tokens=20, ttft_seconds=0.5, queue_seconds=0.1,
        duration_seconds=2.5, instance="node-1", request=hash("abc-7-0123abcd"),
    )  # fmt: skip
    assert reader.read_json(json.dumps(request(ATTRIBUTES)).encode()) == [(expected, hash("abc-7"))]
    assert reader.read_protobuf(protobuf(ATTRIBUTES)) == [(expected, hash("abc-7"))]


def test_sglang_tells_cached_tokens_and_spans_may_name_a_session(reader: SpanReader, identifier) -> None:
    held = {**ATTRIBUTES, "gen_ai.usage.cached_tokens": 1000, "session.id": "s", "gen_ai.request.id": "plain"}
    ((event, alias),) = reader.read_json(json.dumps(request(held)).encode())
    assert (event.cached_tokens, event.session, event.session_source) == (1000, identifier.hash("s"), "log")
    assert alias == 0


def test_the_session_in_a_request_id_must_be_asked_for(identifier) -> None:
    body = json.dumps(request(ATTRIBUTES)).encode()
    ((event, _),) = SpanReader(identifier).read_json(body)
    assert (event.session, event.session_source) == (None, "none")
    ((event, _),) = SpanReader(identifier, session_in_id=True).read_json(body)
    assert (event.session, event.session_source) == (identifier.hash("abc"), "request_id")


def test_a_span_without_a_model_is_of_the_only_one_served(reader: SpanReader) -> None:
    """vLLM 0.32 names no model in its spans."""
    nameless = {key: held for key, held in ATTRIBUTES.items() if key != "gen_ai.response.model"}
    body = json.dumps(request(nameless, ATTRIBUTES)).encode()

    def models() -> list[str]:
        return [event.model for event, _ in reader.read_json(body)]

    assert models() == ["", "qwen"]
    try:
        learn_max_length("a:1", {"tiny": 4096})
        assert models() == ["tiny", "qwen"]
        learn_max_length("b:1", {"tiny": 8192})
        assert models() == ["tiny", "qwen"]
        learn_max_length("b:1", {"large": 8192})
        assert models() == ["", "qwen"]
    finally:
        for engine in ("a:1", "b:1"):
            learn_max_length(engine, {})


@pytest.mark.parametrize(
    ("request_id", "gateway"),
    [("chatcmpl-x", "x"), ("chatcmpl-x", "chatcmpl-x"), ("chatcmpl-x-01234567", "x"), ("cmpl-x-0", "x"),
     ("cmpl-x-0-01234567", "x"), ("x-01234567", "x-01234567")],
)  # fmt: skip
def test_ids_are_known_again_however_they_are_spelt(
    reader: SpanReader, request_id: str, gateway: str
) -> None:
    body = json.dumps(request({**ATTRIBUTES, "gen_ai.request.id": request_id})).encode()
    ((event, alias),) = reader.read_json(body)
    assert request_hash(gateway) in (event.request, alias)
    assert request_hash("other") not in (event.request, alias)


def test_start_up_spans_are_passed_over(reader: SpanReader) -> None:
    assert (
        reader.read_json(json.dumps(request({"vllm.process_kind": "engine"}, ATTRIBUTES)).encode())[1:] == []
    )


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"resourceSpans": 3}', b"[" * 100_000, b"\xff"])
def test_bad_json_is_a_value_error(reader: SpanReader, body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # whatever the decoder says
        reader.read_json(body)


@pytest.mark.parametrize(
    "body",
    [{}, {"resourceSpans": [1, {"scopeSpans": 3}, {"resource": 4, "scopeSpans": [{"spans": [5, {}]}]}]},
     {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [3, {"key": 5}, {"key": "a"}]}]}]}]}],
)  # fmt: skip
def test_odd_shapes_hold_no_spans(reader: SpanReader, body: dict) -> None:
    assert reader.read_json(json.dumps(body).encode()) == []


def test_odd_values_are_not_known(reader: SpanReader) -> None:
    held = {**ATTRIBUTES, "gen_ai.usage.prompt_tokens": "many", "gen_ai.latency.time_to_first_token": -1.0,
            "gen_ai.latency.e2e": float("nan"), "gen_ai.usage.completion_tokens": 1e400}  # fmt: skip
    ((event, _),) = reader.read_json(json.dumps(request(held)).encode())
    assert (event.prompt_tokens, event.ttft_seconds, event.output_tokens) == (None, None, None)
    assert event.duration_seconds == 2.5  # from the span's own ends


class Running:
    """A receiver on loopback and what it took in."""

    def __init__(self, identifier) -> None:
        self.spans: list = []
        self.receiver = OtlpReceiver(SpanReader(identifier), self.spans.extend, "here")
        self.server = OtlpServer("127.0.0.1", 0, self.receiver)
        self.server.start()

    def post(self, body: bytes, kind: str = "application/json", path: str = "/v1/traces", **headers: str):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=5)
        try:
            connection.request("POST", path, body, {"Content-Type": kind, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def running(identifier) -> Iterator[Running]:
    held = Running(identifier)
    yield held
    held.server.close()


def test_over_http(running: Running) -> None:
    body = json.dumps(request(ATTRIBUTES)).encode()
    assert running.post(body) == (200, b"{}")
    assert running.post(gzip.compress(body), **{"Content-Encoding": "gzip"}) == (200, b"{}")
    assert running.post(protobuf(ATTRIBUTES), "application/x-protobuf") == (200, b"")
    assert len(running.spans) == running.receiver.state.events == 3
    assert running.receiver.state.last_event == 1764453600.0


def test_what_strangers_send(running: Running) -> None:
    assert running.post(b"{}", "text/html")[0] == 415
    assert running.post(b"{}", path="/v1/metrics")[0] == 404
    assert running.post(b"rubbish")[0] == 400
    assert running.post(b"rubbish", "application/x-protobuf")[0] == 400
    assert running.post(b"{}", **{"Content-Encoding": "br"})[0] == 400
    assert running.post(b"no gzip", **{"Content-Encoding": "gzip"})[0] == 400
    bomb = gzip.compress(b" " * (17 << 20))
    assert running.post(bomb, **{"Content-Encoding": "gzip"}) == (400, b"too large once unpacked\n")
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=5) as client:
        client.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert b" 413 " in client.recv(4096)
    assert running.post(json.dumps(request(ATTRIBUTES)).encode())[0] == 200
    assert len(running.spans) == 1


def test_without_the_extra_protobuf_is_refused_with_the_way_out(running, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None)
    with pytest.raises(NoProtobuf):
        running.receiver._reader.read_protobuf(b"")
    status, text = running.post(b"", "application/x-protobuf")
    assert status == 415
    assert b"llm-diag[otlp]" in text
    assert "llm-diag[otlp]" in running.receiver.state.error


def test_an_address_that_is_taken_is_told_in_one_line(running: Running) -> None:
    with pytest.raises(FeedError, match=r"cannot receive traces on .*address already in use") as caught:
        OtlpServer("127.0.0.1", running.server.port, running.receiver)
    assert "\n" not in str(caught.value)
