"""A scripted engine and raw clients on loopback; the proxy between them runs as it does in production."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from diag_exporter.sessions.identity import new_key
from diag_exporter.sessions.proxy import ProxyOptions, RunningProxy, start_proxy
from tests.exporters.proxy.loopback import Collected, Place

# A worker takes a moment to start: tests with the same settings share one.
_SHARED: dict[str, object] = {
    "include_usage": False,
    "headers_seconds": 2.0,
    "idle_seconds": 2.0,
    "stall_seconds": 3.0,
    "body_seconds": 1.0,
    "drain_seconds": 0.5,
    "watch_bytes": 200_000,
}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def started() -> Iterator[Callable[..., Place]]:
    """``started(**options)``: a running proxy with those settings; the same settings, the same proxy."""
    places: dict[str, tuple[RunningProxy, Place]] = {}

    def start(**changed: object) -> Place:
        settings = _SHARED | changed
        name = repr(sorted(settings.items()))
        if name not in places:
            engine_port = _free_port()
            options = ProxyOptions(
                upstream=f"http://127.0.0.1:{engine_port}",
                listen="127.0.0.1:0",
                **settings,  # type: ignore[arg-type]
            )
            told = Collected()
            running = start_proxy(options, told, new_key())
            places[name] = running, Place(running, running.address[1], engine_port, told)
        return places[name][1]

    yield start
    for running, _ in places.values():
        running.stop()


@pytest.fixture
def place(started: Callable[..., Place]) -> Iterator[Place]:
    """The proxy most tests share, with nothing told yet."""
    yield started()
    _settle(started())


@pytest.fixture
def asking(started: Callable[..., Place]) -> Iterator[Place]:
    """A proxy that asks for usage."""
    yield started(include_usage=True)
    _settle(started(include_usage=True))


def _settle(place: Place) -> None:
    # A worker tells its news ten times a second: the last test's must not count as the next one's.
    if not place.told.waited:
        time.sleep(0.15)
    place.told.clear()
