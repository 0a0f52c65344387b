"""An engine on loopback that answers what a test says, or does not answer at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from diag_exporter.engine import lengths

Answer = tuple[int, bytes] | Callable[["StandIn"], None]


class StandIn(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Authorization")))  # type: ignore[attr-defined]
        answer = self.server.answers.get(self.path, (404, b""))  # type: ignore[attr-defined]
        if callable(answer):
            return answer(self)
        status, body = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    def log_message(self, *args: object) -> None:
        pass


class Engine:
    """``answers`` by path; ``seen``: paths asked for, each with its authorization."""

    def __init__(self, port: int = 0) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", port), StandIn)
        self.server.daemon_threads = True
        self.answers: dict[str, Answer] = {"/health": (200, b"")}
        self.seen: list[tuple[str, str | None]] = []
        self.server.answers, self.server.seen = self.answers, self.seen  # type: ignore[attr-defined]
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(autouse=True)
def _nothing_learnt() -> Iterator[None]:
    """What a poller of a test learnt must not be known to the tests of sessions."""
    yield
    lengths._known.clear()


@pytest.fixture
def engine() -> Iterator[Engine]:
    held = Engine()
    yield held
    held.close()


@pytest.fixture
def other() -> Iterator[Engine]:
    held = Engine()
    yield held
    held.close()


def hang(seconds: float) -> Callable[[StandIn], None]:
    """Say nothing for a while."""
    return lambda _: time.sleep(seconds)


def drip(seconds: float) -> Callable[[StandIn], None]:
    """Send a byte now and then: each read succeeds, the answer never ends."""

    def answer(handler: StandIn) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                handler.wfile.write(b"x")
                handler.wfile.flush()
                time.sleep(0.05)
        except OSError:
            pass

    return answer


@pytest.fixture
def answers() -> dict[str, Callable[[float], Callable[[StandIn], None]]]:
    return {"hang": hang, "drip": drip}
