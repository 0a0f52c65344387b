"""Starting, stopping, restarting, and what is written down meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import cast

import pytest

from diag_exporter.sessions import proxy as proxy_module
from diag_exporter.sessions.events import Event
from diag_exporter.sessions.identity import Identifier, Key, load_key, new_key
from diag_exporter.sessions.proxy import ProxyCollector, ProxyError, ProxyOptions, RunningProxy, start_proxy
from diag_exporter.sessions.proxying import parent
from diag_exporter.sessions.proxying.wire import Inbox, Outbox
from tests.exporters.proxy.loopback import (
    END,
    STREAM_HEAD,
    Client,
    Collected,
    Exchange,
    Place,
    chunk,
    engine,
    eventually,
    post,
    token,
)

_SECRET = "Correct-Horse-Battery-Staple"
_MESSAGES = [{"role": "user", "content": _SECRET}]
_ASK = json.dumps({"model": "m", "stream": True, "user": "ann@example.org", "messages": _MESSAGES}).encode()
Alone = Callable[..., subprocess.Popen[bytes]]
_ALONE = "from diag_exporter.sessions.proxy import proxy; import typer; typer.run(proxy)"


@pytest.fixture
def alone() -> Iterator[Alone]:
    """``alone(*arguments)`` runs the command; a test that fails leaves none behind."""
    children: list[subprocess.Popen[bytes]] = []

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _ALONE, *arguments]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return children[-1]

    yield run
    for child in children:
        child.kill()
        child.communicate()


def _port_told(child: subprocess.Popen[bytes]) -> int:
    assert child.stderr is not None
    line = child.stderr.readline().decode()
    assert line.startswith("passing http://127.0.0.1:"), line
    return int(line.split(" ")[1].rpartition(":")[2])


_TELLING = (
    post(_ASK, headers=("X-Session-Id: s", "x-tenant-id: team")),
    post(b"{" + _SECRET.encode()),
    post(_ASK, path="/v1/completions?die"),
    post(_ASK, headers=(f"X-Bad\x00{_SECRET}: {_SECRET}",)),
    post(_ASK, headers=(f"Authorization: Bearer {_SECRET}", "Content-Length: 1")),
)


async def _speak_or_die(exchange: Exchange) -> None:
    if b"die" in exchange.head:
        exchange.writer.close()
    else:
        await exchange.send(STREAM_HEAD, chunk(token(_SECRET)), chunk(b"data: [DONE]\n\n"), END)


def test_alone_it_writes_records_and_nothing_of_the_text(place: Place, alone: Alone, tmp_path: Path) -> None:
    """Also when the body is broken, the engine dies, the header is malformed."""
    records = tmp_path / "records.jsonl"
    child = alone(
        "--upstream", f"http://127.0.0.1:{place.engine_port}", "--listen", ":0", "--records", str(records)
    )
    here = Place(place.proxy, _port_told(child), place.engine_port, place.told)

    async def run() -> None:
        async with engine(here, _speak_or_die):
            for request in _TELLING:
                client = await Client.connect(here)
                await client.send(request)
                await asyncio.wait_for(client.answer(), 3)
                client.close()
            client = await Client.connect(here)
            await client.send(post(_ASK)[:-3])
            client.close()
            await eventually(lambda: records.exists() and records.read_text().count("\n") >= 3)

    asyncio.run(run())
    child.send_signal(signal.SIGTERM)
    out, said = child.communicate(timeout=10)
    assert child.returncode == 0
    assert out == b""
    text = records.read_text()
    for leaked in (_SECRET, "ann@example.org"):
        assert leaked not in text
        assert leaked.encode() not in said
    assert b"Traceback" not in said
    first = json.loads(text.splitlines()[0])
    assert first.keys() >= {"ts", "model", "tenant", "session", "ttft_seconds", "duration_seconds", "status"}
    assert (first["tenant"], first["status"], len(first["session"])) == ("team", "ok", 16)
    assert "prompt_tokens" not in first


def test_a_taken_port_is_told_in_a_line(place: Place, alone: Alone) -> None:
    """Even by another proxy, which would otherwise share it without a word."""
    options = ProxyOptions("http://127.0.0.1:1", f"127.0.0.1:{place.port}")
    with pytest.raises(ProxyError, match=f":{place.port}: Address already in use$"):
        start_proxy(options, Collected(), new_key())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        child = alone("--upstream", "http://127.0.0.1:1", "--listen", f"127.0.0.1:{port}")
        _, said = child.communicate(timeout=10)
        assert said.decode().strip() == (
            f"diag-exporter: the proxy cannot listen on 127.0.0.1:{port}: Address already in use"
        )
        assert child.returncode == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"upstream": "localhost:8000"}, "not an upstream: 'localhost:8000'"),
        ({"upstream": "ftp://x"}, "not an upstream"),
        ({"upstream": "http://x:99999"}, "not an upstream"),
        ({"upstream": "http://user:pw@x"}, "carries credentials"),
        ({"upstream": "http://x/?a=b"}, "no query"),
        ({"upstream": "http://x", "listen": "x:y"}, "not an address to listen on"),
        ({"upstream": "http://x", "workers": 0}, "workers is 0"),
        ({"upstream": "http://x", "stall_seconds": -1.0}, "stall-seconds is negative"),
        ({"upstream": "http://x", "upstream_ca": "/nowhere"}, "no file of certificates"),
    ],
)
def test_a_setting_that_cannot_work_is_told_at_once(options: dict[str, object], said: str) -> None:
    with pytest.raises(ProxyError) as caught:
        ProxyOptions(**options).checked()  # type: ignore[arg-type]
    assert said in str(caught.value)
    assert "pw" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_aiohttp_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(parent, "version", missing)
    with pytest.raises(ProxyError, match=r"^the proxy needs aiohttp: install llm-diag\[proxy\]$"):
        start_proxy(ProxyOptions("http://x", ":0"), Collected(), new_key())
    monkeypatch.setattr(parent, "version", lambda _: "3.9.5")
    with pytest.raises(ProxyError, match=r"^the proxy needs aiohttp 3\.12 or newer, here is 3\.9\.5$"):
        start_proxy(ProxyOptions("http://x", ":0"), Collected(), new_key())


def test_what_is_installed_is_what_the_proxy_asks_for() -> None:
    held = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    extras = held["project"]["optional-dependencies"]
    least = f"aiohttp>={'.'.join(map(str, parent._AIOHTTP))}"
    assert least in extras["proxy"]
    assert least in extras["dev"]


def test_a_worker_that_dies_is_started_again(started: Callable[..., Place]) -> None:
    place = started(idle_seconds=30.0)

    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD)
        await exchange.watch()

    async def run() -> None:
        async with engine(place, script):
            client = await Client.connect(place)
            await client.send(post(_ASK, headers=("x-tenant-id: t",)))
            await client.head()
            await eventually(lambda: place.told.in_flight["t"] == 1)
            (pid,) = place.proxy.worker_pids()
            os.kill(pid, signal.SIGKILL)
            # Its requests are gone with it, and are not counted as running for ever.
            await eventually(lambda: place.told.in_flight["t"] == 0)
            await eventually(lambda: place.proxy.worker_pids() not in ([], [pid]), 6)
            again = await Client.connect(place)
            await again.send(post(_ASK))
            assert (await again.head())[0] == 200
            client.close()
            again.close()

    asyncio.run(run())
    rows = ProxyCollector(place.proxy).collect(0.0)
    assert rows["llmdiag_proxy_worker_restarts_total"][0].value == 1
    assert rows["llmdiag_proxy_workers"][0].value == 1


def test_a_new_key_is_taken_by_running_workers_and_by_those_started_later(place: Place) -> None:
    told, first, second = Collected(), new_key(), new_key()
    running = start_proxy(
        ProxyOptions(f"http://127.0.0.1:{place.engine_port}", ":0", drain_seconds=0.5), told, first
    )
    here = Place(running, running.address[1], place.engine_port, told)

    async def ask() -> None:
        client = await Client.connect(here)
        await client.send(post(_ASK, headers=("X-Session-Id: s",)))
        await client.answer()
        client.close()

    async def run() -> None:
        async with engine(here, _speak_or_die):
            await ask()
            running.take(second)
            # The worker reads it between two requests; this one may still have the key of before.
            await asyncio.sleep(0.2)
            await ask()
            await asyncio.to_thread(told.wait, 2)
            (pid,) = running.worker_pids()
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda: running.worker_pids() not in ([], [pid]), 6)
            await ask()
            await asyncio.to_thread(told.wait, 3)

    try:
        asyncio.run(run())
    finally:
        running.stop()
    running.take(first)  # after the end: nothing to tell, no error
    old, new = Identifier(first).hash("s"), Identifier(second).hash("s")
    assert [event.session for event in told.events] == [old, new, new]


def test_alone_it_follows_the_key_in_its_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "key"
    key = load_key(file)
    taken: list[Key] = []

    class Running:
        take = staticmethod(taken.append)

    running = cast(RunningProxy, Running())
    assert proxy_module._renewed(running, key, file) == key
    assert taken == []
    file.write_text(f"1.0 {key.secret.hex()}\n")
    renewed = proxy_module._renewed(running, key, file)
    assert taken == [renewed] != [key]
    file.chmod(0o644)
    assert proxy_module._renewed(running, renewed, file) == renewed
    first, second = capfd.readouterr().err.splitlines()
    assert first == "the key of the session hash was renewed: sessions look new once"
    assert second.endswith("chmod 600 it, or delete it; the key of before stays")


def test_a_worker_does_not_outlive_its_exporter(place: Place, alone: Alone) -> None:
    child = alone("--upstream", "http://127.0.0.1:1", "--listen", ":0")
    port = _port_told(child)
    child.kill()
    child.wait()
    end = time.monotonic() + 5
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 0.5).close()
        except OSError:
            break
        assert time.monotonic() < end, "the worker still listens"
        time.sleep(0.05)
    assert place.proxy.alive() == 1


def test_running_answers_end_before_a_stop(place: Place) -> None:
    told = Collected()
    upstream = f"http://127.0.0.1:{place.engine_port}"
    running = start_proxy(ProxyOptions(upstream, ":0", drain_seconds=5), told, new_key())
    here = Place(running, running.address[1], place.engine_port, told)

    async def script(exchange: Exchange) -> None:
        await exchange.send(STREAM_HEAD, chunk(token("a")))
        await asyncio.sleep(0.6)
        await exchange.send(chunk(token("b")), END)

    async def run() -> None:
        async with engine(here, script):
            client = await Client.connect(here)
            await client.send(post(_ASK))
            await client.head()
            stopping = asyncio.create_task(asyncio.to_thread(running.stop))
            rest = await asyncio.wait_for(client.reader.read(), 3)
            assert rest.endswith(END)
            await asyncio.wait_for(stopping, 3)
            client.close()

    asyncio.run(run())
    assert [event.status for event in told.events] == ["ok"]


def test_the_collector_tells_of_failures_that_never_happened_too(started: Callable[..., Place]) -> None:
    rows = ProxyCollector(started(max_in_flight=3).proxy).collect(0.0)
    assert rows.keys() == {family.name for family in ProxyCollector.families}
    assert {row.labels: row.value for row in rows["llmdiag_proxy_upstream_failures_total"]} == {
        ("connect",): 0,
        ("died",): 0,
        ("idle",): 0,
        ("timeout",): 0,
    }


def test_a_parent_that_lags_loses_events_but_not_their_end() -> None:
    readable, writable = os.pipe()
    outbox = Outbox(writable)
    events = 60_000
    for number in range(events):
        outbox.began("t")
        outbox.ended("t", Event(ts=1.0, model="m"), "id")
        if number % 1000 == 0:
            outbox.flush()
    came = Collected()
    dropped: list[tuple[str, str, int]] = []

    def ended(tenant: str, event: Event | None, _: str) -> None:
        came.ended(tenant)
        if event is not None:
            came.add(event)

    inbox = Inbox(came.began, ended, lambda *counted: dropped.append(counted))
    os.set_blocking(readable, False)
    rest = b""
    for _ in range(100_000):
        outbox.flush()
        try:
            *lines, rest = (rest + os.read(readable, 65536)).split(b"\n")
        except BlockingIOError:
            break
        for line in lines:
            inbox.take(line)
    os.close(readable)
    os.close(writable)
    lost = sum(number for name, _, number in dropped if name == "dropped")
    assert lost > 0
    assert len(came.events) == events - lost
    assert came.in_flight["t"] == 0
