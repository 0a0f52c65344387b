"""What the streaming proxy costs next to nginx and to a plain aiohttp pass-through, in one run.

    python -m bench.proxy

CPU time of each proxy's own processes, by the kernel's account, so that the load beside it does not
count. Two loads each: answers of one piece (per request), and long streams (per piece of them).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

__all__ = ["main"]

_REQUESTS = 3000
_STREAMS = 100
_PIECES = 100
_ROUNDS = 3
_EVERY_SECONDS = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")
# 190 bytes: what a token costs in vLLM's chat stream.
_PIECE = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"m","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,'
    b'"finish_reason":null}]}\n\n'
)
_LAST = b"data: [DONE]\n\n"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_TEXT = "The history of a conversation that goes on. " * 45  # 2 kB


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_END = _chunk(_LAST) + b"0\r\n\r\n"


def _request(pieces: int) -> bytes:
    said = {"model": "m", "stream": True, "user": "u", "max_tokens": pieces}
    body = json.dumps(said | {"messages": [{"role": "user", "content": _TEXT}]}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\n"
    head += b"Authorization: Bearer k\r\nUser-Agent: bench\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


# --- the engine, a process of its own ---


class _Engine(asyncio.Protocol):
    """Answers ``max_tokens`` pieces, one every 20 ms."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance: uvloop's transports are no subclasses.
        self._transport = cast(asyncio.Transport, transport)
        self._waiting = b""

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        head, found, body = self._waiting.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) < length:
            return
        pieces = json.loads(body[:length])["max_tokens"]
        self._waiting = body[length:]
        self._transport.write(_HEAD + _chunk(_PIECE) if pieces > 1 else _HEAD + _chunk(_PIECE) + _END)
        if pieces > 1:
            self._more(pieces - 1)

    def _more(self, left: int) -> None:
        if left == 0:
            self._transport.write(_END)
        else:
            self._transport.write(_chunk(_PIECE))
            asyncio.get_running_loop().call_later(_EVERY_SECONDS, self._more, left - 1)


async def _engine(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Engine, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


# --- the plain pass-through, a process of its own ---


async def _plain(port: int, engine_port: int) -> None:
    """aiohttp, as little as passes a stream on: reads no body, counts nothing, notices no departure."""
    import aiohttp
    from aiohttp import web

    session = aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0))

    async def passed(request: web.BaseRequest) -> web.StreamResponse:
        kept = {n: v for n, v in request.headers.items() if n.lower() not in ("host", "content-length")}
        url = f"http://127.0.0.1:{engine_port}{request.path_qs}"
        async with session.request(request.method, url, headers=kept, data=await request.read()) as upstream:
            reply = web.StreamResponse(status=upstream.status)
            reply.content_type = upstream.content_type
            await reply.prepare(request)
            async for data in upstream.content.iter_any():
                await reply.write(data)
            await reply.write_eof()
            return reply

    server = web.Server(passed, access_log=None)
    await asyncio.get_running_loop().create_server(server, "127.0.0.1", port, backlog=1024)
    await asyncio.Event().wait()


# --- the load ---


async def _one(port: int, request: bytes, times: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(times):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readuntil(b"0\r\n\r\n")
    writer.close()


async def _load(port: int, connections: int, times: int, pieces: int) -> None:
    request = _request(pieces)
    await asyncio.gather(*(_one(port, request, times) for _ in range(connections)))


def _cpu_seconds(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


@dataclass(frozen=True, slots=True)
class Measured:
    """Microseconds of CPU."""

    request: float
    piece: float


def _measure(port: int, pids: list[int]) -> Measured:
    asyncio.run(_load(port, 10, 20, 1))
    before = _cpu_seconds(pids)
    asyncio.run(_load(port, 10, _REQUESTS // 10, 1))
    request = (_cpu_seconds(pids) - before) / _REQUESTS
    before = _cpu_seconds(pids)
    asyncio.run(_load(port, _STREAMS, 1, _PIECES))
    streams = _cpu_seconds(pids) - before
    piece = (streams - _STREAMS * request) / (_STREAMS * (_PIECES - 1))
    return Measured(request * 1e6, piece * 1e6)


# --- the proxies ---


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_for(port: int) -> None:
    end = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


@contextmanager
def _role(name: str, *ports: int) -> Iterator[list[int]]:
    child = subprocess.Popen([sys.executable, "-m", "bench.proxy", name, *map(str, ports)])
    try:
        _wait_for(ports[0])
        yield [child.pid]
    finally:
        child.terminate()
        child.wait()


_NGINX = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error crit;
events {{ worker_connections 2048; }}
http {{
  log_format one escape=json '{{"ts":"$msec","status":"$status","duration":"$request_time"}}';
  access_log {folder}/access one; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 100; keepalive_requests 1000000; }}
  server {{ listen 127.0.0.1:{port}; keepalive_requests 1000000;
    location / {{ proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
                  proxy_buffering off; }} }}
}}
"""


@contextmanager
def _nginx(port: int, engine: int) -> Iterator[list[int] | None]:
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="bench-nginx-") as folder:
        config = Path(folder) / "conf"
        config.write_text(_NGINX.format(folder=folder, port=port, engine=engine))
        child = subprocess.Popen([program, "-c", str(config), "-e", f"{folder}/error"])
        try:
            _wait_for(port)
            yield [child.pid]
        finally:
            child.terminate()
            child.wait()


class _Nowhere:
    """A sink that lets go."""

    def add(self, event: object) -> None:
        pass

    def began(self, tenant: str) -> None:
        pass

    def ended(self, tenant: str) -> None:
        pass


@contextmanager
def _ours(port: int, engine: int) -> Iterator[list[int]]:
    from diag_exporter.sessions.identity import new_key
    from diag_exporter.sessions.proxy import ProxyOptions, start_proxy

    options = ProxyOptions(f"http://127.0.0.1:{engine}", f"127.0.0.1:{port}", drain_seconds=0)
    running = start_proxy(options, _Nowhere(), new_key())
    try:
        yield running.worker_pids()
    finally:
        running.stop()


def _least(measured: list[Measured | None]) -> Measured | None:
    """Of several rounds: whatever else the machine does can only add."""
    known = [one for one in measured if one is not None]
    if not known:
        return None
    return Measured(min(one.request for one in known), min(one.piece for one in known))


def main() -> None:
    """Measure and print. What a microsecond is depends on the machine: the ratio is the figure to hold."""
    engine, port = _free_port(), _free_port()
    proxies: dict[str, Callable[[], AbstractContextManager[list[int] | None]]] = {
        "nginx, buffering off, JSON log": lambda: _nginx(port, engine),
        "plain aiohttp pass-through": lambda: _role("plain", port, engine),
        "diag-exporter's proxy": lambda: _ours(port, engine),
    }
    rounds: dict[str, list[Measured | None]] = {name: [] for name in proxies}
    print(f"{'CPU time of the proxy':<34} {'µs/request':>10} {'µs/piece':>9}  {'against plain':<18} target")
    with _role("engine", engine):
        for _ in range(_ROUNDS):
            for name, proxy in proxies.items():
                with proxy() as pids:
                    rounds[name].append(None if pids is None else _measure(port, pids))
    plain = _least(rounds["plain aiohttp pass-through"])
    for name, measured in rounds.items():
        cost = _least(measured)
        if cost is None or plain is None:
            print(f"{name:<34} not installed")
            continue
        ratio = f"{cost.request / plain.request:.2f}x and {cost.piece / plain.piece:.2f}x"
        target = "<= 1.2x and 1.3x (220 and 30 µs)" if name.startswith("diag") else ""
        print(f"{name:<34} {cost.request:>10.0f} {cost.piece:>9.1f}  {ratio:<18} {target}".rstrip())


def _run_role(arguments: list[str]) -> None:
    run: Callable[[Any], Any] = asyncio.run
    with contextlib.suppress(ImportError):
        run = importlib.import_module("uvloop").run
    if arguments[0] == "engine":
        run(_engine(int(arguments[1])))
    else:
        run(_plain(int(arguments[1]), int(arguments[2])))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _run_role(sys.argv[1:])
    else:
        main()
