"""The engine's and the client's end, on bare sockets: what is on the wire is what the test says."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from diag_exporter.sessions.events import Event
from diag_exporter.sessions.proxy import RunningProxy

__all__ = [
    "Client",
    "Collected",
    "Engine",
    "Exchange",
    "Place",
    "chunk",
    "dechunked",
    "engine",
    "event_of",
    "eventually",
    "post",
    "token",
]

END = b"0\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Collected:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.in_flight: Counter[str] = Counter()
        self.waited = False
        self._changed = threading.Condition()

    def add(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def began(self, tenant: str) -> None:
        with self._changed:
            self.in_flight[tenant] += 1
            self._changed.notify_all()

    def ended(self, tenant: str) -> None:
        with self._changed:
            self.in_flight[tenant] -= 1
            self._changed.notify_all()

    def clear(self) -> None:
        self.events.clear()
        self.waited = False

    def wait(self, number: int = 1, seconds: float = 3.0) -> list[Event]:
        """The events, once there are so many."""
        self.waited = True
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self.events) >= number, seconds)
            assert enough, f"{len(self.events)} of {number} events came"
            return list(self.events)


@dataclass(frozen=True, slots=True)
class Place:
    """A running proxy, where it listens, where its engine has to be."""

    proxy: RunningProxy
    port: int
    engine_port: int
    told: Collected


@dataclass(slots=True)
class Exchange:
    """One request as the engine got it, and the connection to answer on."""

    head: bytes
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    left: asyncio.Event = field(default_factory=asyncio.Event)
    left_at: float = 0.0

    @property
    def headers(self) -> list[tuple[str, str]]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines)]

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def watch(self) -> None:
        """Note when the proxy closes this connection."""
        try:
            while await self.reader.read(65536):
                pass
        except OSError:
            pass
        self.left_at = time.monotonic()
        self.left.set()


Script = Callable[[Exchange], Awaitable[None]]


@dataclass(slots=True)
class Engine:
    """Answers each request by ``script``; keeps the requests."""

    script: Script
    seen: list[Exchange] = field(default_factory=list)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
                exchange = Exchange(head, b"", reader, writer)
                exchange.body = await _body(exchange, reader)
                self.seen.append(exchange)
                await self.script(exchange)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()


async def _body(exchange: Exchange, reader: asyncio.StreamReader) -> bytes:
    length, coding = exchange.header("content-length"), exchange.header("transfer-encoding")
    assert length is None or coding is None, "the proxy framed a body in two ways"
    if coding is None:
        return await reader.readexactly(int(length or 0))
    return await dechunked(reader)


async def dechunked(reader: asyncio.StreamReader) -> bytes:
    """A body in chunks, to its end; raises ``IncompleteReadError`` when it is cut short."""
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
    assert await reader.readuntil(b"\r\n") == b"\r\n"
    return bytes(body)


@asynccontextmanager
async def engine(place: Place, script: Script) -> AsyncIterator[Engine]:
    """Runs where the proxy's upstream has to be."""
    scripted = Engine(script)
    server = await asyncio.start_server(
        scripted.connected, "127.0.0.1", place.engine_port, limit=2**20, backlog=2048, reuse_address=True
    )
    try:
        yield scripted
    finally:
        server.close()
        for exchange in scripted.seen:
            exchange.writer.close()
        # The proxy must notice before the next engine takes the port.
        await asyncio.sleep(0.02)


class Client:
    """A client's connection to the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, place: Place) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", place.port, limit=2**20))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers, names in lower case."""
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
        pairs = [line.partition(": ") for line in lines]
        return int(first.split(" ")[1]), {name.lower(): value for name, _, value in pairs}

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """A whole answer; raises ``IncompleteReadError`` when it is cut short."""
        status, headers = await self.head()
        assert not ("content-length" in headers and "transfer-encoding" in headers)
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, await dechunked(self.reader)
        if "content-length" in headers:
            return status, headers, await self.reader.readexactly(int(headers["content-length"]))
        return status, headers, await self.reader.read()

    def close(self) -> None:
        self.writer.close()


def post(body: bytes, *, path: str = "/v1/chat/completions", headers: tuple[str, ...] = ()) -> bytes:
    """A request's bytes."""
    lines = [f"POST {path} HTTP/1.1", "Host: proxy", "Content-Type: application/json", *headers]
    return ("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])).encode() + body


def event_of(said: object) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(said).encode() + b"\n\n"


def token(text: str) -> bytes:
    """An event with one token of a chat."""
    return event_of({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


def chunk(data: bytes) -> bytes:
    """One chunk on the wire."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def eventually(holds: Callable[[], bool], seconds: float = 3.0) -> None:
    """Wait until ``holds``."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        await asyncio.sleep(0.01)
