"""Slow clients and many of them: memory stays bounded, nobody else notices."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path

from tests.exporters.proxy.loopback import (
    END,
    STREAM_HEAD,
    Client,
    Exchange,
    Place,
    chunk,
    dechunked,
    engine,
    post,
    token,
)

_ASK = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
_EVENT = token("x" * 60_000)
_PIECE = chunk(_EVENT)


def _resident_bytes(place: Place) -> int:
    pages = 0
    for pid in place.proxy.worker_pids():
        pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_a_slow_client_slows_its_engine_down_and_nobody_else(place: Place) -> None:
    sent = 0
    pieces = 1000  # 60 MB

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        if b"quick" in exchange.body:
            await exchange.send(STREAM_HEAD, chunk(token("a")), END)
            return
        await exchange.send(STREAM_HEAD)
        for _ in range(pieces):
            await exchange.send(_PIECE)
            sent += 1
        await exchange.send(END)

    async def run() -> None:
        async with engine(place, script):
            before = _resident_bytes(place)
            slow = await Client.connect(place)
            await slow.send(post(_ASK))
            await slow.head()
            await asyncio.sleep(0.7)
            # The kernel's buffers on four sockets hold some MB; the engine waits for the rest.
            held = sent
            assert held < pieces * 0.5
            assert _resident_bytes(place) - before < 16e6
            started = time.monotonic()
            quick = await Client.connect(place)
            await quick.send(post(_ASK.replace(b"hi", b"quick")))
            await quick.answer()
            assert time.monotonic() - started < 0.3
            quick.close()
            # Once it reads again it gets everything.
            whole = await asyncio.wait_for(dechunked(slow.reader), 10)
            assert len(whole) == pieces * len(_EVENT)
            assert sent == pieces
            slow.close()

    asyncio.run(run())
    assert [event.status for event in place.told.wait(2)] == ["ok", "ok"]


def test_a_client_that_takes_nothing_is_cut_off(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        exchange.writer.write(STREAM_HEAD + _PIECE * 500)
        await exchange.watch()

    before = place.proxy.counters().get(("client_stalls", ""), 0)

    async def run() -> None:
        async with engine(place, script) as scripted:
            client = await Client.connect(place)
            await client.send(post(_ASK))
            await client.head()
            await asyncio.wait_for(scripted.seen[0].left.wait(), 8)
            client.close()

    asyncio.run(run())
    assert place.told.wait()[0].status == "error"
    assert place.proxy.counters()["client_stalls", ""] == before + 1


def test_a_client_that_does_not_send_its_body_is_told_so(place: Place) -> None:
    async def script(_: Exchange) -> None:
        raise AssertionError("half a request was passed on")

    async def run() -> None:
        async with engine(place, script):
            client = await Client.connect(place)
            await client.send(post(_ASK)[:-5])
            assert (await asyncio.wait_for(client.answer(), 3))[0] == 408
            client.close()

    asyncio.run(run())


def test_a_thousand_streams_at_once(started: Callable[..., Place]) -> None:
    place = started(workers=2, headers_seconds=20.0, idle_seconds=20.0)
    streams, tokens = 1000, 5
    begin = asyncio.Event()
    waiting = 0

    async def script(exchange: Exchange) -> None:
        nonlocal waiting
        mark = json.loads(exchange.body)["user"].encode()
        await exchange.send(STREAM_HEAD, chunk(b"data: %s\n\n" % mark))
        waiting += 1
        if waiting == streams:
            begin.set()
        await begin.wait()
        for _ in range(tokens):
            await exchange.send(chunk(token("a")))
            await asyncio.sleep(0.02)
        await exchange.send(END)

    async def one(number: int) -> None:
        client = await Client.connect(place)
        mark = f"u{number}".encode()
        await client.send(post(_ASK.replace(b'"m"', b'"m", "user": "%s"' % mark)))
        status, _, body = await client.answer()
        assert status == 200
        assert body == b"data: %s\n\n" % mark + token("a") * tokens
        client.close()

    async def run() -> None:
        async with engine(place, script):
            await asyncio.wait_for(asyncio.gather(*(one(number) for number in range(streams))), 25)

    asyncio.run(run())
    events = place.told.wait(streams, 10)
    assert {event.status for event in events} == {"ok"}
    assert len({event.session for event in events}) == streams
    assert _resident_bytes(place) < 2 * 80e6


def test_above_its_limit_the_proxy_says_so(started: Callable[..., Place]) -> None:
    place = started(max_in_flight=2)

    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD)
        await exchange.watch()

    async def run() -> None:
        async with engine(place, script):
            held = [await Client.connect(place) for _ in range(2)]
            for client in held:
                await client.send(post(_ASK))
                await client.head()
            third = await Client.connect(place)
            await third.send(post(_ASK))
            assert (await asyncio.wait_for(third.answer(), 2))[0] == 503
            for client in [*held, third]:
                client.close()

    asyncio.run(run())
