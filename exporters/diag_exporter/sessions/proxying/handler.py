"""The data path: one coroutine a request. A client's departure cancels it, which closes the upstream."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import warnings
from collections.abc import AsyncIterator
from functools import lru_cache
from time import monotonic

from aiohttp import ClientConnectorError, ClientError, ClientResponse, ClientSession, hdrs
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web import BaseRequest, RequestPayloadError, Response, StreamResponse
from yarl import URL

from diag_exporter.sessions.identity import Identifier
from diag_exporter.sessions.proxying import asks, headers
from diag_exporter.sessions.proxying.options import ProxyOptions
from diag_exporter.sessions.proxying.passage import Ledger, Passage
from diag_exporter.sessions.proxying.replies import BodyWatch, NoWatch, StreamWatch, Watch

__all__ = ["Handler", "error_answer"]

# Larger bodies go out piece by piece, so that one upload does not hold up the streams beside it.
_PIECE_BYTES = 256 * 1024
_NO_BODY = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


class _Refused(Exception):
    """Answered by the proxy itself."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text


class _Reply(StreamResponse):
    """Lets its headers wait for the first bytes of the body; aiohttp sends them at once otherwise."""

    _send_headers_immediately = False


class Handler:
    """Called by aiohttp's low-level server for each request."""

    def __init__(
        self, options: ProxyOptions, session: ClientSession, ledger: Ledger, identifier: Identifier
    ) -> None:
        self._options = options
        self._session = session
        self._ledger = ledger
        self._reader = asks.Reader(identifier, options.include_usage).read
        self._run = os.urandom(8).hex()
        self._numbers = itertools.count()
        base = options.upstream.rstrip("/")
        # Not normalised and not quoted anew: the engine sees the path the client sent.
        self._url = lru_cache(256)(lambda target: URL(base + target, encoded=True))

    async def __call__(self, request: BaseRequest) -> StreamResponse:
        passage = self._passage(request)
        ledger = self._ledger
        ledger.begin(passage)
        try:
            self._admit(passage)
            return await self._pass(passage)
        except _Refused as refused:
            return error_answer(refused.status, refused.text)
        except RequestPayloadError:
            return error_answer(400, "the request's body is malformed")
        except (asyncio.CancelledError, ConnectionError):
            # The client left, or its end broke while it was written to. Clients that hang up on the last
            # event, before the end of the body, have all they asked for.
            passage.status = "error" if passage.cut else "ok" if passage.watch.done() else "aborted"
            raise
        finally:
            if passage.upstream is not None:
                passage.upstream.close()
            ledger.end(passage)

    def _passage(self, request: BaseRequest) -> Passage:
        sent = request.headers
        name = self._options.tenant_header
        tenant = sent.get(name, "")[:128] if name else ""
        # With an id of its own a request can be found again in the engine's traces.
        request_id = headers.request_id(sent.get("X-Request-Id")) or f"{self._run}{next(self._numbers):08x}"
        path = request.raw_path.partition("?")[0]
        return Passage(request, path, tenant, request_id, asks.is_watched(request.method, path))

    def _admit(self, passage: Passage) -> None:
        request = passage.request
        why = headers.refusal(request.method, request.raw_path, request.headers)
        if why is None and len(self._ledger.open) > self._options.max_in_flight:
            why = 503, "too many requests in flight"
        if why is not None:
            self._ledger.teller.count("refused", str(why[0]))
            raise _Refused(*why)

    async def _pass(self, passage: Passage) -> StreamResponse:
        request = passage.request
        body = await self._body(passage)
        upstream = passage.upstream = await self._ask(passage, body)
        del body
        passage.watch = watch = self._watch(passage, upstream)
        sent = upstream.headers
        # A length beside chunks is none (RFC 9112 §6.3), and bytes may be taken out of the answer.
        keep_length = not passage.ask.inject and "Transfer-Encoding" not in sent
        given = headers.returned(sent.items(), sent.getall("Connection", []), keep_length)
        reply = _Reply(status=upstream.status, reason=upstream.reason, headers=given)
        writer = await reply.prepare(request)
        assert writer is not None
        if not upstream.content.total_bytes and not upstream.content.at_eof():
            # The first token may be long in coming; with it here, both go out in one piece.
            writer.send_headers()
        if not await self._relay(passage, upstream, writer, watch):
            # No end is written: the client must see that the answer is cut short.
            _cut(request, self._options.stall_seconds)
            return reply
        if upstream.status < 400 and not watch.failed():
            passage.status = "ok"
        return reply

    async def _relay(
        self, passage: Passage, upstream: ClientResponse, writer: AbstractStreamWriter, watch: Watch
    ) -> bool:
        """Pass pieces on as they come, then the end; False when the upstream broke off."""
        content, feed = upstream.content, watch.feed
        read, write, ended = content.readany, writer.write, content.at_eof
        while True:
            passage.since = monotonic()
            passage.waits_on = "upstream"
            try:
                data = await read()
            except (ClientError, OSError):
                self._failed(passage.cut or "died")
                return False
            passage.since = now = monotonic()
            # A client that takes nothing suspends the write, which in turn stops reading the upstream.
            passage.waits_on = "client"
            if data:
                data = feed(data, now)
            if ended():
                await writer.write_eof(data + watch.rest())
                passage.waits_on = ""
                return True
            if data:
                await write(data)

    async def _ask(self, passage: Passage, body: bytes | AsyncIterator[bytes] | None) -> ClientResponse:
        request = passage.request
        url = self._url(request.raw_path)
        sent = headers.forwarded(request.headers.items(), request.headers.getall("Connection", []))
        if sent is None:
            raise _Refused(400, "a header's value is not UTF-8")
        if passage.watched:
            sent = [pair for pair in sent if pair[0].lower() != "x-request-id"]
            sent.append(("X-Request-Id", passage.request_id))
        if isinstance(body, bytes) and len(body) > _PIECE_BYTES:
            sent.append((hdrs.CONTENT_LENGTH, str(len(body))))
            body = _pieces(body)
        elif body is not None and not isinstance(body, bytes) and request.content_length is not None:
            sent.append((hdrs.CONTENT_LENGTH, str(request.content_length)))
        try:
            async with asyncio.timeout(self._options.headers_seconds or None):
                return await self._session.request(
                    request.method, url, headers=sent, data=body, allow_redirects=False
                )
        except ClientConnectorError:
            self._failed("connect")
            raise _Refused(502, "the upstream cannot be reached") from None
        except TimeoutError as error:
            self._failed("timeout")
            connecting = isinstance(error, ClientError)
            text = "the upstream takes no connection" if connecting else "the upstream did not answer in time"
            raise _Refused(504, text) from None
        except (ClientError, OSError):
            self._failed("died")
            raise _Refused(502, "the upstream closed the connection without an answer") from None

    def _failed(self, reason: str) -> None:
        self._ledger.teller.count("upstream_failures", reason)

    def _watch(self, passage: Passage, upstream: ClientResponse) -> Watch:
        if not passage.watched or upstream.status >= 400:
            return NoWatch()
        if upstream.headers.get("Content-Encoding", "identity").lower() != "identity":
            self._ledger.teller.count("unread", "answer_encoded")
            return NoWatch()
        kind = upstream.headers.get("Content-Type", "")
        if kind.startswith("text/event-stream"):
            return StreamWatch(strip=passage.ask.inject)
        return BodyWatch() if kind.startswith("application/json") else NoWatch()

    async def _body(self, passage: Passage) -> bytes | AsyncIterator[bytes] | None:
        request = passage.request
        if not request.can_read_body:
            return None if request.method in _NO_BODY else b""
        if "Expect" in request.headers:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        if not passage.watched:
            return self._uploaded(request, ())
        return await self._read(passage)

    async def _read(self, passage: Passage) -> bytes | AsyncIterator[bytes]:
        """The whole body, or an iterator over it when it is too much to hold."""
        request, options, ledger = passage.request, self._options, self._ledger
        if request.content.is_eof():
            # All of it came with the headers, as it mostly does.
            return self._known(passage, request.content.read_nowait())
        pieces: list[bytes] = []
        held = 0
        try:
            async with asyncio.timeout(options.body_seconds or None):
                while data := await request.content.readany():
                    pieces.append(data)
                    held += len(data)
                    ledger.held_bytes += len(data)
                    if held > options.watch_bytes or ledger.held_bytes > options.budget_bytes:
                        ledger.teller.count("unread", "too_large" if held > options.watch_bytes else "budget")
                        passage.ask = self._reader(passage.path, request.headers, b"{}", passage.tenant)
                        return self._uploaded(request, tuple(pieces))
        except TimeoutError:
            raise _Refused(408, "the request's body did not come in time") from None
        finally:
            ledger.held_bytes -= held
        return self._known(passage, b"".join(pieces))

    def _known(self, passage: Passage, body: bytes) -> bytes:
        request = passage.request
        passage.ask = ask = self._reader(passage.path, request.headers, body, passage.tenant)
        if ask.unread:
            self._ledger.teller.count("unread", ask.unread)
        return asks.with_usage(body) if ask.inject else body

    async def _uploaded(self, request: BaseRequest, first: tuple[bytes, ...]) -> AsyncIterator[bytes]:
        for data in first:
            yield data
        while True:
            async with asyncio.timeout(self._options.body_seconds or None):
                data = await request.content.readany()
            if not data:
                return
            yield data


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(body), _PIECE_BYTES):
        yield bytes(view[start : start + _PIECE_BYTES])


def error_answer(status: int, text: str) -> Response:
    """An error in the shape OpenAI's clients read; the connection ends with it."""
    body = json.dumps({"error": {"message": f"proxy: {text}", "type": "proxy_error", "code": status}})
    reply = Response(status=status, text=body, content_type="application/json")
    reply.force_close()
    return reply


def _cut(request: BaseRequest, seconds: float) -> None:
    """Close after what was already written; at once if the client does not take even that."""
    transport = request.transport
    if transport is not None:
        transport.close()
        asyncio.get_running_loop().call_later(seconds or 120.0, transport.abort)


# aiohttp warns of bodies beyond 1 MiB given as bytes; they are given in pieces.
warnings.filterwarnings("ignore", message="Sending a large body directly", category=ResourceWarning)
