"""The HTTP side: ``/metrics``, ``/-/healthy``, ``/-/ready``, and a process that stops and reloads cleanly.

``/-/healthy`` says that the process lives and asks nothing else: a liveness probe that asked a driver
would kill the monitor just when it is needed. Neither probe shows data, so neither asks for a password.
"""

from __future__ import annotations

import base64
import binascii
import errno
import logging
import math
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any

from diag_exporter import __version__
from diag_exporter.page import OPEN_METRICS, OWN_FAMILIES, TEXT, compressed, own_rows, render
from diag_exporter.settings import Address, SettingsError
from diag_exporter.snapshot import Sampler
from diag_exporter.webconfig import OPEN, WebConfig

__all__ = ["Exporter", "Server", "give_up", "run"]

_LOG = logging.getLogger("diag_exporter")
_IDLE_SECONDS = 30.0  # a kept-alive connection without a request; scrapes come more often
_CONNECTIONS = 64


class Exporter:
    """What is served: the samplers by part, and how the page is protected. Both may be replaced."""

    def __init__(self, samplers: Mapping[str, Sampler], web: WebConfig = OPEN) -> None:
        self.samplers = dict(samplers)
        self.web = web

    def page(self, *, open_metrics: bool = False) -> bytes:
        """The page of this moment. Calls no collector."""
        snapshots = {part: sampler.snapshot() for part, sampler in self.samplers.items()}
        families = list(OWN_FAMILIES)
        rows: dict[str, Any] = dict(own_rows(snapshots, __version__))
        for snapshot in snapshots.values():
            families.extend(family for family in snapshot.families if family.name not in rows)
            rows.update({name: some for name, some in snapshot.rows.items() if name not in rows})
        return render(families, rows, open_metrics=open_metrics).encode()

    def ready(self) -> bool:
        """Whether every part has been read once."""
        return all(math.isfinite(sampler.snapshot().age) for sampler in self.samplers.values())

    def wedged(self) -> list[str]:
        """Names of the collectors whose call does not come back."""
        return [
            name
            for sampler in self.samplers.values()
            for name, health in sampler.snapshot().health.items()
            if health.wedged
        ]


class Server(ThreadingHTTPServer):
    """Listens; one thread a connection, never more than ``_CONNECTIONS``."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, where: Address, exporter: Exporter) -> None:
        """Raise ``SettingsError`` when the address cannot be had."""
        self.exporter = exporter
        self._room = threading.BoundedSemaphore(_CONNECTIONS)
        try:
            found = socket.getaddrinfo(
                where.host or None, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except socket.gaierror as error:
            raise SettingsError(f"--listen {where}: {error.strerror}") from None
        self.address_family = found[0][0]
        try:
            super().__init__((where.host, where.port), _Handler)
        except OSError as error:
            raise SettingsError(_refusal(where, error)) from None

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self.server_address[:2]
        scheme = "https" if self.exporter.web.tls else "http"
        name = str(host)
        return f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}"

    def server_bind(self) -> None:
        """Bind without asking a name server what this host is called."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, or close it when too many are open."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Shake hands here, not where connections are accepted: a silent client must not block others."""
        try:
            request.settimeout(_IDLE_SECONDS)
            tls = self.exporter.web.tls
            if tls is not None:
                request = tls.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except (ssl.SSLError, OSError):
            self.shutdown_request(request)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A client that went away is no news; anything else is one line."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            _LOG.error("answering %s failed: %s: %s", client_address[0], type(error).__name__, error)


def _refusal(where: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where} is taken: another diag-exporter or another program listens there; "
            "stop it or choose another --listen"
        )
    if error.errno == errno.EACCES:
        return f"{where}: this user may not listen there; choose a port above 1023"
    return f"cannot listen on {where}: {error.strerror}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    # Headers and body leave in one packet, or a delayed acknowledgement holds up the second.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/-/healthy":
            self._answer(HTTPStatus.OK, b"healthy\n")
        elif path == "/-/ready":
            ready = self.server.exporter.ready()
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, b"ready\n" if ready else b"the first pass has not ended\n")
        elif not self._allowed():
            self._answer(
                HTTPStatus.UNAUTHORIZED,
                b"a name and a password are needed\n",
                {"WWW-Authenticate": 'Basic realm="diag-exporter", charset="UTF-8"'},
            )
        elif path == "/metrics":
            self._metrics()
        elif path == "/":
            self._answer(HTTPStatus.OK, _INDEX, {"Content-Type": "text/html; charset=utf-8"})
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"there is /metrics, /-/healthy and /-/ready\n")

    do_HEAD = do_GET

    def version_string(self) -> str:
        return "diag-exporter"

    def log_message(self, *_: object) -> None:
        return None

    def _metrics(self) -> None:
        open_metrics = _accepts(self.headers.get("Accept", ""), "application/openmetrics-text")
        body = self.server.exporter.page(open_metrics=open_metrics)
        headers = {"Content-Type": OPEN_METRICS if open_metrics else TEXT, "Vary": "Accept, Accept-Encoding"}
        if _accepts(self.headers.get("Accept-Encoding", ""), "gzip"):
            body = compressed(body)
            headers["Content-Encoding"] = "gzip"
        self._answer(HTTPStatus.OK, body, headers)

    def _allowed(self) -> bool:
        passwords = self.server.exporter.web.passwords
        if passwords is None:
            return True
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            user, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return passwords.match(user, password)

    def _answer(self, status: HTTPStatus, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        every = {"Content-Type": "text/plain; charset=utf-8", **self.server.exporter.web.headers}
        for name, value in {**every, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


_INDEX = (
    b"<!doctype html><title>diag-exporter</title><h1>diag-exporter</h1>"
    b'<p><a href="/metrics">metrics</a> <a href="/-/healthy">healthy</a> <a href="/-/ready">ready</a>\n'
)


def _accepts(header: str, what: str) -> bool:
    """Whether ``what`` stands in ``header`` and is not refused by q=0."""
    for part in header.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        if name == what:
            return not any(p.startswith("q=") and p[2:].strip("0.") == "" for p in parameters)
    return False


_given_up: list[str] = []  # why; of the whole process, as its signals are


def give_up(why: str) -> None:
    """Only a new process can go on: stop this one cleanly and let it fail, so that its supervisor
    starts another. From any thread, also before ``run``."""
    _given_up.append(why)


def run(server: Server, reload: Callable[[], None]) -> bool:
    """Serve until SIGTERM or SIGINT; SIGHUP calls ``reload``. Return whether every sampler ended.

    The main thread waits and watches; it is also the one that says when a collector hangs. Raise
    ``SettingsError`` after a stop that nobody but the exporter itself wanted."""
    stop, hang_up = threading.Event(), threading.Event()

    def asked(number: int, _: FrameType | None) -> None:
        (hang_up if number == signal.SIGHUP else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, asked)
    exporter = server.exporter
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="http", daemon=True)
    thread.start()
    said: set[str] = set()
    while not stop.wait(0.5) and not _given_up:
        if hang_up.is_set():
            hang_up.clear()
            try:
                reload()
            except SettingsError as error:
                _LOG.error("settings not taken, the old ones stay: %s", error)
        wedged = set(exporter.wedged())
        for name in sorted(wedged - said):
            _LOG.error("collector %s hangs: its call does not return; the page goes on without it", name)
        said = wedged
    server.shutdown()
    server.server_close()
    ended = [sampler.stop() for sampler in exporter.samplers.values()]
    if _given_up:
        raise SettingsError(_given_up[0])
    return all(ended)
