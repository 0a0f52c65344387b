"""Receives OTLP/HTTP traces: ``POST /v1/traces``, on loopback unless told otherwise."""

from __future__ import annotations

import socket
import threading
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from diag_exporter.sessions.feeds.otlp import NoProtobuf, SpanReader, Spans
from diag_exporter.sessions.feeds.state import FeedError, FeedState

__all__ = ["OtlpReceiver", "OtlpServer"]

_BODY_BYTES_MAX = 16 << 20
_AT_ONCE = 8
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_HINT = "protobuf needs the package opentelemetry-proto: pip install 'llm-diag[otlp]'"

Answer = tuple[int, str, bytes]


class OtlpReceiver:
    """Answers export requests; any server can mount it. Safe to call from several threads."""

    def __init__(self, reader: SpanReader, add_spans: Callable[[Spans], None], name: str) -> None:
        self.state = FeedState(name, "otlp")
        self._reader = reader
        self._add = add_spans
        self._lock = threading.Lock()

    def answer(self, content_type: str, encoding: str, body: bytes) -> Answer:
        """Status, content type and body for one export request."""
        kind = content_type.partition(";")[0].strip().lower()
        if kind not in (_JSON, _PROTOBUF):
            return 415, "text/plain", f"send {_PROTOBUF} or {_JSON}\n".encode()
        try:
            plain = _unpacked(body, encoding.strip().lower())
            spans = self._reader.read_json(plain) if kind == _JSON else self._reader.read_protobuf(plain)
        except NoProtobuf:
            self.state.error = _HINT
            return 415, "text/plain", f"{_HINT}\n".encode()
        except (ValueError, zlib.error) as error:
            with self._lock:
                self.state.unusable += 1
            return 400, "text/plain", f"{error}\n".encode()
        with self._lock:
            self.state.error = ""
            self.state.events += len(spans)
            if spans:
                self.state.last_event = spans[-1][0].ts
        if spans:
            self._add(spans)
        # An empty ExportTraceServiceResponse: everything was taken.
        return 200, kind, b"{}" if kind == _JSON else b""


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise ValueError(f"content encoding {encoding[:20]!r} is not known here")
    unpacker = zlib.decompressobj(47)  # gzip or zlib, by its header
    plain = unpacker.decompress(body, _BODY_BYTES_MAX)
    if unpacker.unconsumed_tail:
        raise ValueError("too large once unpacked")
    return plain


class OtlpServer:
    """A small HTTP server for one receiver, in its own threads. Raises ``FeedError`` when the address
    cannot be had."""

    def __init__(self, host: str, port: int, receiver: OtlpReceiver) -> None:
        try:
            self._server = _Server((host, port), receiver)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise FeedError(
                f"cannot receive traces on {host}:{port}: {reason}; choose another --otlp-listen"
            ) from None
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._serve, name="otlp", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """Stop, and free the address."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], receiver: OtlpReceiver) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.receiver = receiver
        self.slots = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no event; anything else shows in the feed's counts."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10
    server: _Server

    def do_POST(self) -> None:
        if self.path.partition("?")[0] != "/v1/traces":
            return self._say(404, "text/plain", b"POST /v1/traces\n")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            return self._refuse(411, b"a Content-Length is needed\n")
        if int(length) > _BODY_BYTES_MAX:
            return self._refuse(413, b"too large\n")
        if not self.server.slots.acquire(timeout=5):
            return self._refuse(503, b"busy\n")
        try:
            body = self.rfile.read(int(length))
            if len(body) < int(length):
                self.close_connection = True
                return None
            kind, encoding = self.headers.get("Content-Type", ""), self.headers.get("Content-Encoding", "")
            return self._say(*self.server.receiver.answer(kind, encoding, body))
        finally:
            self.server.slots.release()

    def do_GET(self) -> None:
        self._say(405, "text/plain", b"POST /v1/traces\n")

    def _refuse(self, status: int, body: bytes) -> None:
        # The request's body stays unread: the connection cannot go on.
        self.close_connection = True
        self._say(status, "text/plain", body)

    def _say(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a line a request is noise, and paths are not ours to write down."""
