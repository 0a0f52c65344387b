"""Two parsers must never disagree on where a request ends, and nothing of one connection goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from tests.exporters.proxy.loopback import Client, Exchange, Place, engine, post

_ASK = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
_SMUGGLED = b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n"
_CHUNKED_END = b"0\r\n\r\n"
_POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"

_ATTACKS = {
    "length and chunks": _POST
    + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(_CHUNKED_END + _SMUGGLED)
    + _CHUNKED_END
    + _SMUGGLED,
    "chunks and length": _POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
    + _CHUNKED_END
    + _SMUGGLED,
    "two lengths": _POST + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(_SMUGGLED) + _SMUGGLED,
    "a list of lengths": _POST + b"Content-Length: 0, 5\r\n\r\n" + _SMUGGLED,
    "a signed length": _POST + b"Content-Length: +0\r\n\r\n" + _SMUGGLED,
    "a length with an underscore": _POST + b"Content-Length: 1_0\r\n\r\n" + _SMUGGLED,
    "a folded length": _POST + b"X-A: b\r\n Content-Length: 5\r\nContent-Length:\r\n 0\r\n\r\n" + _SMUGGLED,
    "a space before the colon": _POST + b"Transfer-Encoding : chunked\r\n\r\n" + _CHUNKED_END + _SMUGGLED,
    "a coding that only looks like chunked": _POST
    + b"Transfer-Encoding: xchunked\r\n\r\n"
    + _CHUNKED_END
    + _SMUGGLED,
    "chunked twice": _POST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"
    + _CHUNKED_END
    + _SMUGGLED,
    "chunked, then another coding": _POST
    + b"Transfer-Encoding: chunked, identity\r\n\r\n"
    + _CHUNKED_END
    + _SMUGGLED,
    "a chunk's size with a sign": _POST + b"Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + _SMUGGLED,
    "a chunk's size in words": _POST + b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + _SMUGGLED,
    "bare line feeds": b"POST /v1/chat/completions HTTP/1.1\nHost: x\nContent-Length: 0\n\n" + _SMUGGLED,
    "a bare carriage return": _POST + b"X-A: b\rTransfer-Encoding: chunked\r\n\r\n" + _SMUGGLED,
    "a zero byte": _POST + b"X-A: b\x00c\r\nContent-Length: 0\r\n\r\n" + _SMUGGLED,
    "a header without a name": _POST + b": chunked\r\nContent-Length: 0\r\n\r\n" + _SMUGGLED,
}


@pytest.fixture
def place(started: Callable[..., Place]) -> Place:
    """A proxy of their own: what it tells is not looked at."""
    return started(drain_seconds=0.4)


async def _answer_anything(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def _all_of_it(place: Place, data: bytes) -> bytes:
    client = await Client.connect(place)
    await client.send(data)
    came = b""
    try:
        async with asyncio.timeout(0.4):
            while piece := await client.reader.read(65536):
                came += piece
    except TimeoutError:
        pass
    client.close()
    return came


@pytest.mark.parametrize("attack", _ATTACKS.values(), ids=_ATTACKS.keys())
def test_doubtful_framing_is_refused_and_nothing_goes_on(place: Place, attack: bytes) -> None:
    async def run() -> None:
        async with engine(place, _answer_anything) as scripted:
            answer = await _all_of_it(place, attack)
            assert scripted.seen == [], [exchange.head for exchange in scripted.seen]
            assert answer.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
            # One refusal, and the connection ends: what follows is nobody's request.
            assert answer.count(b"HTTP/1.") == 1

    asyncio.run(run())


def test_a_folded_header_is_one_line_or_none(place: Place) -> None:
    """Folding in an ordinary header: refused, or unfolded into one value; never a header of its own."""

    async def run() -> None:
        async with engine(place, _answer_anything) as scripted:
            request = post(_ASK, headers=("X-A: b", " X-Smuggled: c"))
            await _all_of_it(place, request)
            for exchange in scripted.seen:
                assert exchange.header("x-smuggled") is None
                assert b"\r\n " not in exchange.head
                assert b"\r\n\t" not in exchange.head

    asyncio.run(run())


def test_headers_of_one_connection_do_not_go_on(place: Place) -> None:
    async def run() -> None:
        async with engine(place, _answer_anything) as scripted:
            request = post(
                _ASK,
                headers=(
                    "Connection: keep-alive, X-Mine",
                    "X-Mine: secret",
                    "Keep-Alive: timeout=5",
                    "Proxy-Authorization: Basic eDp5",
                    "Proxy-Connection: keep-alive",
                    "TE: trailers",
                    "Trailer: X-T",
                    "Authorization: Bearer k",
                    "X-Twice: a",
                    "X-Twice: b",
                    "X-Request-Id: abc-1",
                ),
            )
            await _all_of_it(place, request)
            (exchange,) = scripted.seen
            assert sorted(exchange.headers) == [
                ("authorization", "Bearer k"),
                ("content-length", str(len(_ASK))),
                ("content-type", "application/json"),
                ("host", f"127.0.0.1:{place.engine_port}"),
                ("x-request-id", "abc-1"),
                ("x-twice", "a"),
                ("x-twice", "b"),
            ]

    asyncio.run(run())


def test_headers_of_the_engine_s_connection_do_not_come_back(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
            b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"
        )

    async def run() -> None:
        async with engine(place, script):
            answer = (await _all_of_it(place, post(_ASK))).lower()
            assert b"x-hop" not in answer
            assert b"keep-alive" not in answer
            assert answer.count(b"set-cookie: ") == 2

    asyncio.run(run())


def test_an_engine_that_frames_its_answer_twice_confuses_nobody(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"5\r\nwhole\r\n0\r\n\r\n",
        )

    async def run() -> None:
        async with engine(place, script):
            head, _, body = (await _all_of_it(place, post(_ASK))).partition(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 200"):
                assert b"content-length" not in head.lower()
                assert body == b"5\r\nwhole\r\n0\r\n\r\n"
            else:
                assert head.startswith(b"HTTP/1.1 502")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET http://elsewhere.example/ HTTP/1.1", b"400"),
        (b"CONNECT elsewhere.example:443 HTTP/1.1", b"405"),
        (b"TRACE / HTTP/1.1", b"405"),
        (b"GET //elsewhere.example/ HTTP/1.1", b"200"),
    ],
)
def test_nobody_else_is_asked(place: Place, request_line: bytes, status: bytes) -> None:
    async def run() -> None:
        async with engine(place, _answer_anything) as scripted:
            answer = await _all_of_it(place, request_line + b"\r\nHost: elsewhere.example\r\n\r\n")
            assert answer.split(b" ")[1] == status
            if status == b"200":
                # A path, for the one upstream there is.
                assert scripted.seen[0].head.startswith(b"GET //elsewhere.example/ HTTP/1.1")
            else:
                assert scripted.seen == []

    asyncio.run(run())


def test_an_upgrade_hides_no_second_request(place: Place) -> None:
    async def run() -> None:
        async with engine(place, _answer_anything) as scripted:
            request = _POST + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n"
            answer = await _all_of_it(place, request + _SMUGGLED)
            assert answer.split(b" ")[1] == b"501"
            assert scripted.seen == []

    asyncio.run(run())


def test_bytes_that_are_no_utf_8_pass_in_a_header(place: Place) -> None:
    async def run() -> None:
        async with engine(place, _answer_anything) as scripted:
            head, rest = post(_ASK).split(b"\r\n", 1)
            answer = await _all_of_it(place, head + b"\r\nX-Name: caf\xe9\r\n" + rest)
            # Passed as it is, or refused; not an error within the proxy.
            if answer.split(b" ")[1] == b"200":
                assert b"X-Name: caf\xe9" in scripted.seen[0].head
            else:
                assert answer.split(b" ")[1] == b"400"

    asyncio.run(run())


def test_a_request_id_that_is_none_is_replaced(place: Place) -> None:
    async def run() -> None:
        async with engine(place, _answer_anything) as scripted:
            await _all_of_it(place, post(_ASK, headers=("X-Request-Id: a b;c",)))
            await _all_of_it(place, post(_ASK))
            ids = [exchange.header("x-request-id") for exchange in scripted.seen]
            assert all(value is not None and value.isalnum() for value in ids)
            assert ids[0] != ids[1]

    asyncio.run(run())
