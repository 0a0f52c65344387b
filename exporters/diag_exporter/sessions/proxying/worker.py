"""A process that listens and passes on. Its parent writes settings to its standard input and holds it open;
a later line there is a new key of the session hash.

    python -m diag_exporter.sessions.proxying.worker

It ends when its input ends: a worker never outlives the exporter. SIGTERM to it does the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, hdrs
from aiohttp.web import BaseRequest, RequestHandler, Server, StreamResponse

from diag_exporter.sessions.identity import Identifier, Key
from diag_exporter.sessions.proxying.handler import Handler, error_answer
from diag_exporter.sessions.proxying.options import ProxyOptions, listen_address
from diag_exporter.sessions.proxying.passage import Ledger
from diag_exporter.sessions.proxying.wire import Outbox

__all__ = ["end_what_hangs", "main", "serve"]

_log = logging.getLogger("diag_exporter.proxy")
_FLUSH_SECONDS = 0.1
_CHECK_SECONDS = 1.0
_BACKLOG = 1024
# Per stream at most twice this waits for a slow client here; the kernel's buffers come on top.
_READ_BYTES = 32 * 1024


async def serve(options: ProxyOptions, identifier: Identifier, outbox: Outbox, stop: asyncio.Event) -> None:
    """Listen until ``stop``, then let running answers end within ``drain_seconds``."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_told_in_a_line)
    ledger = Ledger(outbox, options.instance or options.upstream)
    async with _session(options) as session:
        handler = Handler(options, session, ledger, identifier)
        server = _Server(
            handler,
            auto_decompress=False,
            access_log=None,
            logger=_silent(),
            keepalive_timeout=options.client_keepalive_seconds,
            lingering_time=5.0,
            max_field_size=16 * 1024,
            max_line_size=16 * 1024,
        )
        listener = await loop.create_server(server, sock=_listening(options), backlog=_BACKLOG)
        outbox.listening(*listener.sockets[0].getsockname()[:2])
        chores = asyncio.create_task(_chores(options, ledger, outbox))
        await stop.wait()
        listener.close()
        server.pre_shutdown()
        await _drained(ledger, options.drain_seconds)
        for passage in ledger.open:
            passage.cut = "stopping"
        await server.shutdown(0.5)
        chores.cancel()
    outbox.gauge("in_flight", 0)
    outbox.flush()


class _Connection(RequestHandler):
    """aiohttp quotes what it could not parse, in its answer and in its log: neither here."""

    __slots__ = ()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> StreamResponse:
        """One line in the log for a fault of the proxy's own; none for a client's."""
        if status >= 500:
            _log.error("a request failed within the proxy: %s", type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun; it can only be cut short")
        return error_answer(status, "the request is malformed" if status < 500 else "internal error")


class _Server(Server):
    """Makes ``_Connection``s."""

    def __init__(self, handler: Handler, **settings: Any) -> None:
        super().__init__(handler, handler_cancellation=True)
        self._settings = settings

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=asyncio.get_running_loop(), **self._settings)


def _session(options: ProxyOptions) -> ClientSession:
    context = ssl.create_default_context(cafile=options.upstream_ca) if options.upstream_ca else True
    connector = TCPConnector(
        limit=0, keepalive_timeout=options.upstream_keepalive_seconds, ttl_dns_cache=30, ssl=context
    )
    return ClientSession(
        connector=connector,
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(total=None, sock_connect=options.connect_seconds or None),
        auto_decompress=False,
        trust_env=False,
        read_bufsize=_READ_BYTES,
        # aiohttp adds none of its own: the engine sees what the client sent.
        skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT),
        max_line_size=16 * 1024,
        max_field_size=64 * 1024,
    )


def _listening(options: ProxyOptions) -> socket.socket:
    host, port = listen_address(options.listen)
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    user_timeout = getattr(socket, "TCP_USER_TIMEOUT", None)
    if user_timeout is not None and options.stall_seconds:
        # Accepted connections inherit it: the end of an answer that nobody takes is not kept for ever.
        # Twice as long, so that within an answer the check that tells of a stall comes first.
        listener.setsockopt(socket.IPPROTO_TCP, user_timeout, int(options.stall_seconds * 2000))
    listener.bind(address)
    listener.setblocking(False)
    return listener


async def _chores(options: ProxyOptions, ledger: Ledger, outbox: Outbox) -> None:
    """Tell the parent, and end what hangs."""
    checked = 0.0
    while True:
        await asyncio.sleep(_FLUSH_SECONDS)
        now = monotonic()
        if now - checked >= _CHECK_SECONDS:
            checked = now
            end_what_hangs(options, ledger, now)
        outbox.gauge("in_flight", len(ledger.open))
        outbox.flush()


def end_what_hangs(options: ProxyOptions, ledger: Ledger, now: float) -> None:
    """Close the side that has kept a passage waiting for too long."""
    for passage in list(ledger.open):
        waited = now - passage.since
        if passage.waits_on == "client" and 0 < options.stall_seconds < waited:
            passage.cut = "stalled"
            ledger.teller.count("client_stalls", "")
            transport = passage.request.transport
            if transport is not None:
                transport.abort()
        elif passage.waits_on == "upstream" and 0 < options.idle_seconds < waited:
            passage.cut = "idle"
            if passage.upstream is not None:
                passage.upstream.close()


async def _drained(ledger: Ledger, seconds: float) -> None:
    end = monotonic() + seconds
    while ledger.open and monotonic() < end:
        await asyncio.sleep(0.05)


def _silent() -> logging.Logger:
    """aiohttp quotes what it could not parse, credentials included: none of it is kept."""
    logger = logging.getLogger("diag_exporter.proxy.http")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def _told_in_a_line(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not isinstance(error, OSError):
        _log.error("something went wrong in the proxy: %s", type(error).__name__)


def _runner() -> Callable[[Any], Any]:
    run: Callable[[Any], Any] = asyncio.run
    # By name, so that the type checker says the same where uvloop is installed and where it is not.
    with contextlib.suppress(ImportError):
        run = importlib.import_module("uvloop").run
    return run


async def _until_input_ends(options: ProxyOptions, key: Key, outbox: Outbox) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Ctrl-C reaches the whole group; the parent closes the input when it is done itself.
        loop.add_signal_handler(number, stop.set if number == signal.SIGTERM else lambda: None)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    identifier = Identifier(key)
    watch = asyncio.create_task(_new_keys(reader, identifier))
    watch.add_done_callback(lambda _: stop.set())
    await serve(options, identifier, outbox, stop)


async def _new_keys(reader: asyncio.StreamReader, identifier: Identifier) -> None:
    """Take each key the parent sends, until it closes its end."""
    async for line in reader:
        told = json.loads(line)
        identifier.take(Key(bytes.fromhex(told["secret"]), told["created"]))


def main() -> int:
    """Read one line of settings, serve until the input ends."""
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    settings = json.loads(_first_line(sys.stdin.fileno()))
    options = ProxyOptions(**settings["options"])
    key = Key(bytes.fromhex(settings["secret"]), settings["created"])
    _many_connections()
    try:
        # What start-up made stays; a collection then looks at requests only, and less often.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        _runner()(_until_input_ends(options, key, Outbox(sys.stdout.fileno())))
    except OSError as error:
        print(f"the proxy cannot listen on {options.listen}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _many_connections() -> None:
    """Two descriptors a stream: the usual soft limit of 1024 would end at 500."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _first_line(descriptor: int) -> bytes:
    """Byte by byte: what comes behind is the event loop's."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            raise SystemExit(0)
        line += byte
    return line


if __name__ == "__main__":
    sys.exit(main())
