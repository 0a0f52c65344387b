"""Scripted collectors, a clock that obeys, and servers on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from diag_exporter.families import Family, Group, Row, Rows
from diag_exporter.serve import Exporter, Server
from diag_exporter.settings import Address
from diag_exporter.snapshot import Sampler
from diag_exporter.webconfig import OPEN, WebConfig

TEMPERATURE = Family("llmdiag_test_celsius", "gauge", "A temperature.", ("uuid",))
EVENTS = Family("llmdiag_test_events_total", "counter", "Events.", ("kind",))


@dataclass
class Clock:
    """Unix and steady seconds, moved by hand, apart from each other if asked."""

    now: float = 1_800_000_000.0
    steady_now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def steady(self) -> float:
        return self.steady_now

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        self.steady_now += seconds


@dataclass
class Scripted:
    """A collector that answers with ``rows``, or raises or waits when it holds something for that."""

    name: str = "scripted"
    group: Group = "fast"
    families: tuple[Family, ...] = (TEMPERATURE, EVENTS)
    rows: Rows = field(default_factory=lambda: {"llmdiag_test_celsius": [Row(("GPU-1",), 61.0)]})
    failure: Exception | None = None
    gate: threading.Event | None = None
    seconds: float = 0.0
    calls: int = 0
    closed: int = 0

    def collect(self, now: float) -> Rows:
        assert now > 1e9, "collectors get unix seconds"
        self.calls += 1
        time.sleep(self.seconds)
        if self.gate is not None:
            self.gate.wait(20)
        if self.failure is not None:
            raise self.failure
        return self.rows

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted


@pytest.fixture
def sampler(clock: Clock) -> Callable[..., Sampler]:
    """``sampler(collector, …)`` on the obeying clock; sampled by the test, not by a thread."""

    def make(*collectors: Scripted, **options: Any) -> Sampler:
        return Sampler(collectors, clock=clock, steady=clock.steady, **options)

    return make


@pytest.fixture
def serving() -> Iterator[Callable[..., Server]]:
    """``serving(sampler)`` listens on a free port of loopback until the test ends."""
    servers: list[Server] = []

    def start(*samplers: Sampler, web: WebConfig = OPEN) -> Server:
        exporter = Exporter({one.name: one for one in samplers}, web)
        server = Server(Address("127.0.0.1", 0), exporter)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``cert.pem`` and ``key.pem`` for 127.0.0.1."""
    openssl = shutil.which("openssl")
    if openssl is None:
        if os.environ.get("CI") == "true":
            pytest.fail("openssl is not installed")
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        [
            openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=127.0.0.1",
            "-addext", "subjectAltName=IP:127.0.0.1",
        ],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder
