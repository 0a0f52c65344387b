"""Runs the command line in this process, as the console script does."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest

from diag.cli import main


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run left: exit code, answer, complaints."""

    code: int
    out: str
    err: str


@pytest.fixture
def diag(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ran]:
    """``diag("triage", "x")`` runs in an empty folder with no defaults from outside."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(arguments)
        said = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Ran(left.value.code, said.out, said.err)

    return run


@pytest.fixture
def unanswering() -> Iterator[socket.socket]:
    """A listening socket that answers nothing by itself."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(30)
        yield server


Samples = list[tuple[dict[str, str], list[float], list[float]]]


def _samples(bundle: Path) -> Samples:
    """Labels, unix seconds and values of each series of a recording, read without the product."""
    rows: Samples = []
    for path in sorted((bundle / "metrics").iterdir()):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line in data.splitlines():
            row = json.loads(line)
            pairs = zip(row["timestamps"], row["values"], strict=True)
            known = [(time / 1000, value) for time, value in pairs if isinstance(value, int | float)]
            rows.append((row["metric"], [time for time, _ in known], [value for _, value in known]))
    return rows


def _line(labels: dict[str, str], value: float, time: float | None = None) -> str:
    inner = ",".join(f"{name}={json.dumps(text)}" for name, text in labels.items() if name != "__name__")
    return f"{labels['__name__']}{{{inner}}} {value!r}{'' if time is None else f' {time:.3f}'}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def prometheus(incidents: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Prometheus that holds the reference recording."""
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    if not server or not tool:
        if os.environ.get("CI") == "true":
            pytest.fail("prometheus is not installed")
        pytest.skip("prometheus is not installed")
    folder = tmp_path_factory.mktemp("prometheus")
    rows = _samples(incidents / "context_growth_reference")
    with (folder / "all.om").open("w") as out:
        for labels, times, values in sorted(rows, key=lambda row: row[0]["__name__"]):
            out.writelines(
                _line(labels, value, time) + "\n" for time, value in zip(times, values, strict=True)
            )
        out.write("# EOF\n")
    data = folder / "data"
    subprocess.run(
        [tool, "tsdb", "create-blocks-from", "openmetrics", str(folder / "all.om"), str(data)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    port = _free_port()
    process = subprocess.Popen(
        [
            server, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={data}",
            f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}/-/ready", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        assert process.poll() is None, "the server ended at start-up"
        with contextlib.suppress(OSError), urlopen(url, timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    pytest.fail("the server did not become ready")


@pytest.fixture
def page_server(incidents: Path) -> Iterator[str]:
    """The address of an engine whose /metrics replays a recorded load burst, ten times as fast."""
    rows = [
        row
        for row in _samples(incidents / "load_burst")
        if row[0].get("job", "").startswith("vllm") and row[1]
    ]
    first = min(times[0] for _, times, _ in rows) + 60.0
    began = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            now = first + 10.0 * (time.monotonic() - began)
            lines = []
            for labels, times, values in rows:
                at = bisect_right(times, now) - 1
                if at >= 0:
                    own = {name: text for name, text in labels.items() if name not in ("job", "instance")}
                    lines.append(_line(own, values[at]))
            body = ("\n".join(lines) + "\n").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
