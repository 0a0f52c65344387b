"""The nginx preset against lines that a real nginx wrote."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from diag.records import read_requests

pytestmark = pytest.mark.server

_CONFIG = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  log_format diag escape=json '{{"msec":"$msec","request_time":"$request_time","status":"$status",'
    '"request_method":"$request_method","request_uri":"$request_uri","request_id":"$request_id",'
    '"request_completion":"$request_completion","http_x_session_id":"$http_x_session_id",'
    '"upstream_addr":"$upstream_addr","upstream_connect_time":"$upstream_connect_time",'
    '"upstream_header_time":"$upstream_header_time","upstream_response_time":"$upstream_response_time"}}';
  access_log {folder}/access.log diag;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream engine {{ server 127.0.0.1:{dead}; server 127.0.0.1:{alive} backup; }}
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://engine; proxy_buffering off; }} }}
}}
"""

_HEADERS = "Host: x\r\nX-Session-Id: s1\r\nContent-Length: 0\r\nConnection: close"


class _Engine(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(1.0 if self.path.endswith("slow") else 0.1)
        with suppress(OSError):  # nginx hangs up when its client left
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _send(port: int, head: str, *, leave_after: float | None = None) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(f"{head} HTTP/1.1\r\n{_HEADERS}\r\n\r\n".encode())
        if leave_after is None:
            while client.recv(4096):
                pass
        else:
            time.sleep(leave_after)


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[int]:
    binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if binary is None:
        if os.environ.get("CI") == "true":
            pytest.fail("nginx is not installed")
        pytest.skip("nginx is not installed")
    engine = ThreadingHTTPServer(("127.0.0.1", 0), _Engine)
    threading.Thread(target=engine.serve_forever, args=(0.05,), daemon=True).start()
    port = _free_port()
    config = tmp_path / "nginx.conf"
    config.write_text(_CONFIG.format(folder=tmp_path, port=port, alive=engine.server_port, dead=_free_port()))
    process = subprocess.Popen([binary, "-p", str(tmp_path), "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(10)
        engine.shutdown()
        engine.server_close()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail("nginx did not start")


def test_lines_of_a_real_nginx(nginx: int, tmp_path: Path) -> None:
    began = time.time()
    _send(nginx, "POST /v1/chat/completions")
    _send(nginx, "POST /v1/slow", leave_after=0.3)
    _send(nginx, "GET /metrics")
    log = tmp_path / "access.log"
    deadline = time.monotonic() + 10
    while log.read_text().count("\n") < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    read = read_requests([log])
    # A connection that was only probed leaves no line; the scrape is passed over.
    assert (read.read, read.skipped, read.bad_total) == (2, 1, 0)
    first, second = (row for _, row in read.frame.iterrows())
    assert (first["status"], second["status"]) == ("ok", "aborted")
    assert first["session"] == "s1"
    assert abs(first["ts"] - began) < 1.0
    assert 0.08 < first["duration_seconds"] < 2.0
    assert 0.08 < first["upstream_response_seconds"] < 2.0
    # The first upstream refused: nginx wrote lists, the last address is who answered.
    assert read.frame["instance"].str.count(":").eq(1).all()
    assert len(first["request_id"]) == 32
