"""Real servers on free loopback ports: Prometheus, Alertmanager, and small pages of our own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

__all__ = ["binary", "free_port", "prometheus_on", "running", "serving"]


def binary(name: str) -> str:
    """Path of an installed server; the test is skipped without it, or fails in continuous integration."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"{name} is not installed")
    return found


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: Sequence[str], url: str, *, log: Path) -> Iterator[str]:
    """Start a server, wait until ``/-/ready`` answers, stop it by its process at the end."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 30
        while not _ready(url):
            assert process.poll() is None, f"{command[0]} ended: {log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"{command[0]} did not become ready"
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def prometheus_on(data: Path, *options: str, config: str = "{}\n") -> Iterator[str]:
    """A Prometheus over the blocks in ``data``; nothing in it is too old."""
    settings = data.parent / f"{data.name}.prometheus.yml"
    settings.write_text(config)
    port = free_port()
    command = [
        binary("prometheus"),
        f"--config.file={settings}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-lifecycle",
        "--log.level=warn",
        *options,
    ]
    with running(command, f"http://127.0.0.1:{port}", log=data.parent / f"{data.name}.log") as url:
        yield url


@contextmanager
def serving(answer: Callable[[str, bytes], str]) -> Iterator[str]:
    """A small HTTP server: ``answer`` gets the path and the body, and returns a text page."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            text = answer(self.path, body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/-/ready", timeout=1).ok
    except requests.RequestException:
        return False
