"""What passes, passes byte for byte, and the event tells what the stream told."""

from __future__ import annotations

import asyncio
import gzip
import json

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

_ASK = json.dumps(
    {"model": "m", "stream": True, "user": "ann", "messages": [{"role": "user", "content": "hi"}]}
).encode()
_USAGE = event_of(
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
    }
)
_DONE = b"data: [DONE]\n\n"
_ROLE = event_of({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})


async def _ask(place: Place, request: bytes) -> tuple[int, dict[str, str], bytes]:
    client = await Client.connect(place)
    await client.send(request)
    answer = await asyncio.wait_for(client.answer(), 5)
    client.close()
    return answer


def test_a_stream_passes_byte_for_byte_and_is_told(place: Place) -> None:
    pieces = [_ROLE, token("Grüße"), token("\\u0000 data: [DONE]"), b": ping\n\n", token("!"), _USAGE, _DONE]
    whole = b"".join(pieces)

    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD, chunk(pieces[0]))
        await asyncio.sleep(0.2)
        # Cut where no event ends: in the middle of a character, of a line, of the final separator.
        rest = b"".join(pieces[1:])
        for start in range(0, len(rest), 37):
            await exchange.send(chunk(rest[start : start + 37]))
            await asyncio.sleep(0.001)
        await exchange.send(END)

    async def run() -> None:
        async with engine(place, script) as scripted:
            request = post(_ASK, headers=("X-Session-Id: s1", "x-tenant-id: t"))
            status, headers, body = await _ask(place, request)
            assert (status, headers["content-type"], body) == (200, "text/event-stream", whole)
            assert scripted.seen[0].body == _ASK

    asyncio.run(run())
    (event,) = place.told.wait()
    assert (event.model, event.tenant, event.status) == ("m", "t", "ok")
    assert (event.prompt_tokens, event.cached_tokens, event.output_tokens) == (12, 8, 3)
    assert event.session_source == "x-session-id"
    assert event.session is not None
    # The role that came first is no token.
    assert event.ttft_seconds is not None
    assert event.ttft_seconds >= 0.2
    assert event.duration_seconds is not None
    assert event.duration_seconds >= event.ttft_seconds
    assert place.told.in_flight["t"] == 0


def test_the_first_piece_is_not_held_back(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD)
        await asyncio.sleep(0.3)
        await exchange.send(chunk(token("a")))
        await asyncio.sleep(0.3)
        await exchange.send(chunk(_DONE), END)

    async def run() -> None:
        async with engine(place, script):
            client = await Client.connect(place)
            await client.send(post(_ASK))
            await asyncio.wait_for(client.head(), 0.25)
            await asyncio.wait_for(client.reader.readuntil(b"\n\n"), 0.5)
            client.close()

    asyncio.run(run())


def test_a_whole_answer_keeps_its_length_and_headers(place: Place) -> None:
    said = json.dumps({"choices": [{"message": {"content": 'a "usage": {"prompt_tokens": 999} trap'}}]})
    whole = said[:-1].encode() + b', "usage": {"prompt_tokens": 7, "completion_tokens": 2}}'

    async def script(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 200 Fine\r\nContent-Type: application/json\r\nServer: engine\r\n"
            b"X-One: a\r\nX-One: b\r\n"
            b"Date: Mon, 02 Nov 2026 10:00:00 GMT\r\nContent-Length: %d\r\n\r\n" % len(whole),
            whole,
        )

    async def run() -> None:
        async with engine(place, script):
            client = await Client.connect(place)
            await client.send(post(_ASK.replace(b'"stream": true', b'"stream": false')))
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 Fine\r\n")
            assert head.count(b"\r\nServer: engine\r\n") == 1
            assert b"\r\nX-One: a\r\nX-One: b\r\n" in head
            assert b"\r\nDate: Mon, 02 Nov 2026 10:00:00 GMT\r\n" in head
            assert b"\r\nContent-Length: %d\r\n" % len(whole) in head
            assert await client.reader.readexactly(len(whole)) == whole
            client.close()

    asyncio.run(run())
    (event,) = place.told.wait()
    assert (event.prompt_tokens, event.output_tokens, event.cached_tokens) == (7, 2, None)
    assert event.ttft_seconds is None


def test_what_is_compressed_passes_as_it_is(place: Place) -> None:
    asked, answered = gzip.compress(_ASK), gzip.compress(token("a") + _USAGE)

    async def script(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
            b"Content-Length: %d\r\n\r\n" % len(answered),
            answered,
        )

    before = place.proxy.counters()

    async def run() -> None:
        async with engine(place, script) as scripted:
            sent = ("Content-Encoding: gzip", "Accept-Encoding: gzip", "X-Session-Id: s")
            _, headers, body = await _ask(place, post(asked, headers=sent))
            assert (headers["content-encoding"], body) == ("gzip", answered)
            assert scripted.seen[0].body == asked
            assert scripted.seen[0].header("content-encoding") == "gzip"
            assert scripted.seen[0].header("accept-encoding") == "gzip"

    asyncio.run(run())
    (event,) = place.told.wait()
    # Unread is not known, and is told.
    assert (event.session_source, event.model, event.ttft_seconds) == ("x-session-id", "", None)
    assert (event.prompt_tokens, event.status) == (None, "ok")
    for reason in ("encoded", "answer_encoded"):
        assert place.proxy.counters()["unread", reason] == before.get(("unread", reason), 0) + 1


def test_an_answer_without_a_body_keeps_its_headers(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        if exchange.head.startswith(b"HEAD"):
            await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\nETag: a\r\n\r\n")
        else:
            await exchange.send(b"HTTP/1.1 304 Not Modified\r\nETag: a\r\n\r\n")

    async def run() -> None:
        async with engine(place, script):
            client = await Client.connect(place)
            await client.send(b"HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            status, headers = await asyncio.wait_for(client.head(), 2)
            assert (status, headers["content-length"], headers["etag"]) == (200, "77", "a")
            await client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            status, headers = await asyncio.wait_for(client.head(), 2)
            assert (status, headers["etag"]) == (304, "a")
            assert "transfer-encoding" not in headers
            client.close()

    asyncio.run(run())


def test_other_paths_pass_and_tell_nothing(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok")

    async def run() -> None:
        async with engine(place, script) as scripted:
            status, _, body = await _ask(place, b"GET /v1/%6dodels?a=b%2Fc&a=%20 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (status, body) == (200, b"ok")
            head = scripted.seen[0].head
            assert head.startswith(b"GET /v1/%6dodels?a=b%2Fc&a=%20 HTTP/1.1\r\n")
            # None of the proxy's own making.
            assert sorted(name for name, _ in scripted.seen[0].headers) == ["host"]
            await _ask(place, post(_ASK))

    asyncio.run(run())
    assert len(place.told.wait()) == 1


def test_a_request_body_in_chunks_arrives_whole(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD, chunk(token("a")), chunk(_DONE), END)

    async def run() -> None:
        async with engine(place, script) as scripted:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            pieces = b"".join(chunk(_ASK[start : start + 10]) for start in range(0, len(_ASK), 10))
            status, _, _ = await _ask(place, head + pieces + END)
            assert status == 200
            assert scripted.seen[0].body == _ASK
            assert scripted.seen[0].header("transfer-encoding") is None

    asyncio.run(run())
    assert place.told.wait()[0].model == "m"


def test_many_requests_share_a_connection_and_the_upstream_s(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD, chunk(exchange.body), chunk(_DONE), END)

    async def run() -> None:
        async with engine(place, script) as scripted:
            client = await Client.connect(place)
            for number in range(20):
                body = _ASK.replace(b"ann", b"ann%d" % number)
                await client.send(post(body))
                assert (await client.answer())[2] == body + _DONE
            client.close()
            assert len({id(exchange.writer) for exchange in scripted.seen}) == 1

    asyncio.run(run())
    assert len({event.session for event in place.told.wait(20)}) == 20


def test_pipelined_requests_are_answered_in_order(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        await asyncio.sleep(0.05 if b"first" in exchange.body else 0)
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(exchange.body)
        await exchange.send(head, exchange.body)

    async def run() -> None:
        async with engine(place, script):
            client = await Client.connect(place)
            await client.send(post(b'{"n": "first"}') + post(b'{"n": "second"}'))
            assert (await client.answer())[2] == b'{"n": "first"}'
            assert (await client.answer())[2] == b'{"n": "second"}'
            client.close()

    asyncio.run(run())


def test_a_client_of_http_1_0_gets_the_bytes_without_chunks(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD, chunk(token("a")), chunk(_DONE), END)

    async def run() -> None:
        async with engine(place, script):
            request = post(_ASK).replace(b"HTTP/1.1", b"HTTP/1.0")
            _, headers, body = await _ask(place, request)
            assert "transfer-encoding" not in headers
            assert body == token("a") + _DONE

    asyncio.run(run())


def test_a_client_that_expects_100_is_told_to_go_on(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        assert exchange.header("expect") is None
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def run() -> None:
        async with engine(place, script):
            client = await Client.connect(place)
            head, body = post(_ASK, headers=("Expect: 100-continue",)).split(b"\r\n\r\n", 1)
            await client.send(head + b"\r\n\r\n")
            told = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 1)
            assert told == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(body)
            assert (await client.answer())[0] == 200
            client.close()

    asyncio.run(run())


def test_a_large_body_passes_unread_and_whole(place: Place) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD, chunk(token("a")), chunk(_USAGE), chunk(_DONE), END)

    before = place.proxy.counters().get(("unread", "too_large"), 0)
    large = _ASK.replace(b'"hi"', b'"' + b"x" * 3_000_000 + b'"')

    async def run() -> None:
        async with engine(place, script) as scripted:
            status, _, _ = await _ask(place, post(large, headers=("X-Session-Id: s",)))
            assert status == 200
            assert scripted.seen[0].body == large
            assert scripted.seen[0].header("content-length") == str(len(large))

    asyncio.run(run())
    (event,) = place.told.wait()
    # What headers and the answer tell is known all the same.
    assert (event.model, event.session_source, event.prompt_tokens) == ("", "x-session-id", 12)
    assert place.proxy.counters()["unread", "too_large"] == before + 1
