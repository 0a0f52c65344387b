"""The proxy and the engine's own traces tell of one request: it counts once, with what each knows."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from diag_exporter.assembly import build
from diag_exporter.families import Histogram, Row
from diag_exporter.sessions.proxy import RunningProxy
from diag_exporter.settings import Settings
from diag_exporter.snapshot import Sampler
from tests.exporters.proxy.loopback import (
    END,
    STREAM_HEAD,
    Client,
    Collected,
    Exchange,
    Place,
    chunk,
    engine,
    event_of,
    eventually,
    post,
    token,
)

_ASK = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}).encode()
_USAGE = event_of({"choices": [], "usage": {"prompt_tokens": 500, "completion_tokens": 1}})


def _free_ports(number: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture
def assembled() -> Iterator[tuple[Sampler, Place, int]]:
    """The sessions part as the command builds it, with a proxy and a receiver of traces; its port."""
    engine_port, port, otlp = _free_ports(3)
    settings = Settings(
        listen="127.0.0.1:0", fast=0.05, slow=0.1, profile="full", otlp_listen=f"127.0.0.1:{otlp}",
        proxy_listen=f"127.0.0.1:{port}", upstream=f"http://127.0.0.1:{engine_port}",
    )  # fmt: skip
    sampler = build(["sessions"], settings)["sessions"]
    sampler.start()
    yield sampler, Place(cast(RunningProxy, None), port, engine_port, Collected()), otlp
    assert sampler.stop()


def _span(request_id: str) -> bytes:
    held = {
        "gen_ai.request.id": {"stringValue": f"chatcmpl-{request_id}-0a1b2c3d"},
        "gen_ai.usage.prompt_tokens": {"intValue": "500"},
        "gen_ai.latency.time_to_first_token": {"doubleValue": 77.0},
        "gen_ai.latency.time_in_queue": {"doubleValue": 0.25},
    }
    attributes = [{"key": key, "value": value} for key, value in held.items()]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": attributes}]}]}]}).encode()


def _send(port: int, body: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("POST", "/v1/traces", body, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()


def test_a_request_of_the_proxy_and_its_span_count_once(assembled: tuple[Sampler, Place, int]) -> None:
    sampler, place, otlp = assembled

    def rows(family: str) -> list[Row]:
        return list(sampler.snapshot().rows.get(f"llmdiag_{family}", ()))

    def value(family: str) -> Any:
        return next((row.value for row in rows(family)), None)

    async def script(exchange: Exchange) -> None:
        request_id = exchange.header("x-request-id")
        assert request_id is not None
        await exchange.send(STREAM_HEAD, chunk(token("a")), chunk(_USAGE), END)
        await asyncio.to_thread(_send, otlp, _span(request_id))

    async def run() -> None:
        await eventually(lambda: bool(rows("feed_up")))
        async with engine(place, script):
            for number, headers in enumerate(((), ("X-Request-Id: from-the-client",)), 1):
                client = await Client.connect(place)
                await client.send(post(_ASK, headers=("x-tenant-id: red", *headers)))
                assert (await client.answer())[0] == 200
                client.close()
                await eventually(lambda number=number: value("feed_joined_total") == number)  # type: ignore[misc]
        await eventually(lambda: value("tenant_requests_total") == 2)

    asyncio.run(run())
    counted = {row.labels: row.value for row in rows("requests_total") if row.value}
    assert counted == {("m", "ok"): 2.0}
    assert {row.labels: row.value for row in rows("request_tokens_total")}["m", "prompt"] == 1000
    # What the client waited for is the proxy's word; how long it queued only the engine knows.
    ttft, queue = value("ttft_seconds"), value("queue_seconds")
    assert isinstance(ttft, Histogram)
    assert 0 < ttft.total < 5
    assert queue.total == 0.5
    assert {row.labels for row in rows("tenant_in_flight_requests") if row.value} == set()
