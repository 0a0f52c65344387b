"""Real servers on free loopback ports, a small scripted one, and samples to put into them."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import requests

from diag.signals.frame import RawSeries

# In order of time: one series of theirs after the other is what promtool takes.
STORED = ("telemetry_fault", "kv_cache_exhaustion", "healthy_a")


@dataclass
class Answer:
    """One scripted answer."""

    body: bytes | str = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


@dataclass
class Scripted:
    """A running server that answers as it was told. ``asked`` holds (method, path, headers)."""

    url: str
    answers: Callable[[str], Answer]
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)


@pytest.fixture
def scripted() -> Iterator[Callable[[Callable[[str], Answer]], Scripted]]:
    """Start a server whose answer to a path is what the given function says."""
    with ExitStack() as stop:

        def start(answers: Callable[[str], Answer]) -> Scripted:
            class Handler(BaseHTTPRequestHandler):
                def log_message(self, *_: object) -> None:
                    pass

                def do_GET(self) -> None:
                    length = int(self.headers.get("Content-Length") or 0)
                    form = self.rfile.read(length).decode()
                    asked = self.path + (("?" + form) if form else "")
                    running.asked.append((self.command, asked, dict(self.headers)))
                    answer = running.answers(asked)
                    body = answer.body.encode() if isinstance(answer.body, str) else answer.body
                    self.send_response(answer.status)
                    for name, value in answer.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

                do_POST = do_GET

            server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            running = Scripted(f"http://127.0.0.1:{server.server_port}", answers)
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            stop.callback(server.server_close)
            stop.callback(server.shutdown)
            return running

        yield start


@pytest.fixture
def answer() -> type[Answer]:
    """The shape of a scripted answer."""
    return Answer


@pytest.fixture
def page() -> Callable[[Path, int], str]:
    """Build the page that a recording's engine showed at its n-th scrape."""
    return _page


@pytest.fixture
def stored_bundles(incidents: Path) -> dict[str, Path]:
    """The recordings that the real stores hold, by name."""
    return {name: incidents / name for name in STORED}


@pytest.fixture(scope="session")
def prometheus_url(tmp_path_factory: pytest.TempPathFactory, incidents: Path) -> Iterator[str]:
    """A real Prometheus that holds the stored recordings."""
    folder = tmp_path_factory.mktemp("prometheus")
    text = folder / "samples.om"
    text.write_text(_openmetrics([one for name in STORED for one in _lines(incidents / name)]))
    promtool, server = _binary("promtool"), _binary("prometheus")
    data = folder / "data"
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(data)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    config = folder / "prometheus.yml"
    config.write_text("{}\n")
    port = _free_port()
    command = [
        server, f"--config.file={config}", f"--storage.tsdb.path={data}", 
        "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    yield from _running(command, f"http://127.0.0.1:{port}", "/-/ready")


@pytest.fixture(scope="session")
def victoria_url(tmp_path_factory: pytest.TempPathFactory, incidents: Path) -> Iterator[str]:
    """A real VictoriaMetrics that holds the stored recordings."""
    folder = tmp_path_factory.mktemp("victoria")
    port = _free_port()
    command = [
        _binary("victoria-metrics"), f"-storageDataPath={folder}", f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=100y", "-loggerLevel=ERROR", "-search.latencyOffset=0s",
    ]  # fmt: skip
    for url in _running(command, f"http://127.0.0.1:{port}", "/health"):
        for name in STORED:
            for path in sorted((incidents / name / "metrics").glob("*.jsonl.gz")):
                requests.post(
                    f"{url}/api/v1/import", gzip.decompress(path.read_bytes()), timeout=20
                ).raise_for_status()
        requests.get(f"{url}/internal/force_flush", timeout=20).raise_for_status()
        yield url


@dataclass(frozen=True)
class Gate:
    """An nginx in front of a Prometheus: one port in the clear, one behind TLS."""

    http: str
    https: str
    authority: Path


_GATE = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  limit_req_zone $server_port zone=slow:1m rate=2r/s;
  limit_req_status 429;
  server {{
    listen 127.0.0.1:{port};
    location /monitoring/ {{ proxy_pass {store}/; }}
    location /private/ {{ auth_basic "store"; auth_basic_user_file {folder}/users; proxy_pass {store}/; }}
    location /limited/ {{ limit_req zone=slow; proxy_pass {store}/; }}
    location /dead/ {{ proxy_pass http://127.0.0.1:{dead}/; }}
    location /login/ {{ return 302 http://sso.invalid/start?next=secret; }}
    location /moved/ {{ rewrite ^/moved/(.*)$ /monitoring/$1 permanent; }}
    location / {{ return 404; }}
  }}
  server {{
    listen 127.0.0.1:{tls_port} ssl;
    ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key;
    ssl_client_certificate {folder}/server.pem; ssl_verify_client optional_no_ca;
    location / {{ proxy_pass {store}/; }}
    location /member/ {{ if ($ssl_client_s_dn = "") {{ return 403; }} proxy_pass {store}/; }}
  }}
}}
"""


@pytest.fixture(scope="session")
def gate(tmp_path_factory: pytest.TempPathFactory, prometheus_url: str) -> Iterator[Gate]:
    """A real nginx in front of the real Prometheus."""
    folder = tmp_path_factory.mktemp("nginx")
    subprocess.run(
        [
            _binary("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
            "-keyout", str(folder / "server.key"), "-out", str(folder / "server.pem"),
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    (folder / "users").write_text("oncall:{PLAIN}s3cret@home\n")
    port, tls_port = _free_port(), _free_port()
    config = folder / "nginx.conf"
    config.write_text(
        _GATE.format(folder=folder, port=port, tls_port=tls_port, dead=_free_port(), store=prometheus_url)
    )
    command = [_binary("nginx"), "-p", str(folder), "-c", str(config)]
    for url in _running(command, f"http://127.0.0.1:{port}", "/monitoring/-/ready"):
        yield Gate(url, f"https://127.0.0.1:{tls_port}", folder / "server.pem")


def _running(command: Sequence[str], url: str, ready: str) -> Iterator[str]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            assert process.poll() is None, f"{command[0]} ended"
            assert time.monotonic() < deadline, f"{command[0]} did not become ready"
            try:
                if requests.get(url + ready, timeout=1).ok:
                    break
            except requests.RequestException:
                pass
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _binary(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"{name} is not installed")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@lru_cache(maxsize=4)
def _lines(bundle: Path) -> list[RawSeries]:
    found: list[RawSeries] = []
    for path in sorted((bundle / "metrics").glob("*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            one = json.loads(line)
            times = np.array(one["timestamps"], dtype=np.float64) / 1000.0
            values = np.array([np.nan if v is None else float(v) for v in one["values"]])
            found.append(RawSeries(one["metric"], times, values))
    return found


def _openmetrics(series: Sequence[RawSeries]) -> str:
    lines: list[str] = []
    for one in series:
        head = _head(one.labels)
        lines += [
            f"{head} {value!r} {moment:.3f}"
            for moment, value in zip(one.times.tolist(), one.values.tolist(), strict=True)
            if value == value
        ]
    return "\n".join([*lines, "# EOF", ""])


def _page(bundle: Path, scrape: int) -> str:
    lines = ["# HELP vllm:num_requests_running what a page starts with"]
    for one in _lines(bundle):
        if one.labels.get("job") == "vllm" and not one.labels["__name__"].startswith(("up", "scrape_")):
            own = {name: value for name, value in one.labels.items() if name not in ("instance", "job")}
            lines.append(f"{_head(own)} {one.values[scrape]!r}".replace("np.float64(", "").rstrip(")"))
    return "\n".join([*lines, ""])


def _head(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items() if name != "__name__")
    return f"{labels['__name__']}{{{pairs}}}"
