"""Asking for usage: only where the client left it open, and the client never sees that it was asked."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.exporters.proxy.loopback import (
    END,
    STREAM_HEAD,
    Client,
    Exchange,
    Place,
    chunk,
    engine,
    event_of,
    post,
    token,
)

_SAID: dict[str, object] = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
_TOKENS = token("a") + token("b")
_USAGE = event_of({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 2}})
_DONE = b"data: [DONE]\n\n"


async def _ask(place: Place, said: dict[str, object], path: str = "/v1/chat/completions") -> bytes:
    client = await Client.connect(place)
    await client.send(post(json.dumps(said).encode(), path=path))
    _, _, body = await asyncio.wait_for(client.answer(), 3)
    client.close()
    return body


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_the_extra_event_is_taken_out_however_it_is_cut(asking: Place, size: int) -> None:
    whole = _TOKENS + _USAGE + _DONE

    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD)
        for start in range(0, len(whole), size):
            await exchange.send(chunk(whole[start : start + size]))
        await exchange.send(END)

    async def run() -> None:
        async with engine(asking, script) as scripted:
            assert await _ask(asking, _SAID) == _TOKENS + _DONE
            asked = json.loads(scripted.seen[0].body)
            assert asked.pop("stream_options") == {"include_usage": True}
            assert asked == _SAID

    asyncio.run(run())
    (event,) = asking.told.wait()
    assert (event.prompt_tokens, event.output_tokens) == (12, 2)


def test_a_length_that_no_longer_holds_is_not_passed_on(asking: Place) -> None:
    whole = _TOKENS + _USAGE + _DONE

    async def script(exchange: Exchange) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        await exchange.send(head, b"Content-Length: %d\r\n\r\n" % len(whole), whole)

    async def run() -> None:
        async with engine(asking, script):
            assert await _ask(asking, _SAID) == _TOKENS + _DONE

    asyncio.run(run())


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"stream_options": {"include_usage": True}}, "/v1/chat/completions"),
        ({"stream_options": {"include_usage": False}}, "/v1/chat/completions"),
        ({"stream_options": None}, "/v1/completions"),
        ({"stream": False}, "/v1/chat/completions"),
        ({}, "/v1/responses"),
    ],
)
def test_who_has_decided_is_not_overruled(asking: Place, change: dict[str, object], path: str) -> None:
    said = _SAID | change

    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD, chunk(_TOKENS + _USAGE + _DONE), END)

    async def run() -> None:
        async with engine(asking, script) as scripted:
            assert await _ask(asking, said, path) == _TOKENS + _USAGE + _DONE
            assert scripted.seen[0].body == json.dumps(said).encode()

    asyncio.run(run())


def test_usage_beside_a_choice_stays(asking: Place) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    last = event_of({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage})

    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD, chunk(_TOKENS), chunk(last + _DONE), END)

    async def run() -> None:
        async with engine(asking, script):
            assert await _ask(asking, _SAID) == _TOKENS + last + _DONE

    asyncio.run(run())
    assert asking.told.wait()[0].prompt_tokens == 3


def test_an_event_without_end_still_arrives(asking: Place) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD, chunk(_TOKENS), chunk(b"data: {half"), END)

    async def run() -> None:
        async with engine(asking, script):
            assert await _ask(asking, _SAID) == _TOKENS + b"data: {half"

    asyncio.run(run())


def test_an_event_of_half_a_megabyte_passes(asking: Place) -> None:
    large = token("y" * 500_000)

    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD)
        for start in range(0, len(large), 50_000):
            await exchange.send(chunk(large[start : start + 50_000]))
        await exchange.send(chunk(_TOKENS + _USAGE + _DONE), END)

    async def run() -> None:
        async with engine(asking, script):
            assert await _ask(asking, _SAID) == large + _TOKENS + _DONE

    asyncio.run(run())
    assert asking.told.wait()[0].prompt_tokens == 12
