"""Two incidents, end to end: scripted cards, the real exporter, a real Prometheus, and what triage says.

Serving is a recorded healthy vLLM whose times an overlay stretches; the cards follow the overlay's
physics. Three minutes are lived through in a fast world, both incidents at once: the clocks of engine and
exporter run ``_SPEED`` times as fast, and what Prometheus has scraped is then spread over the time it stands
for. ``LLMDIAG_TEST_SPEED=1`` lives them as they are and asks the very Prometheus that scraped.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pytest

from diag.signals.frame import RawSeries
from diag.simulate import Bundle, overlaid

pytestmark = pytest.mark.server

_SPEED = float(os.environ.get("LLMDIAG_TEST_SPEED", "8"))
_SCRAPE_SECONDS = 2.0 / _SPEED
_CAUSES = {"healthy_thermal": "thermal_throttle", "healthy_neighbour": "noisy_neighbour"}
_UUID = "GPU-5b1a6f0e-0000-4000-8000-00000000d1a6"

_FAST_WORLD = """
import sys, time
begins, speed, real = float(sys.argv[1]), float(sys.argv[2]), time.time
time.time = lambda: begins + (real() - begins) * speed
from diag_exporter.cli import main
main(sys.argv[3:])
"""


@dataclass(frozen=True)
class Incident:
    """One that is lived through: where its Prometheus answers, when it began, how long it takes (seconds
    as recorded), and a folder for its files."""

    url: str
    begins: float
    seconds: float
    folder: Path

    @property
    def ends(self) -> float:
        """Unix seconds of its end, by the clock on the wall."""
        return self.begins + self.seconds / _SPEED


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _one(bundle: Bundle, name: str) -> RawSeries:
    (found,) = bundle.series(name)
    return found


def _script(bundle: Bundle, begins: float) -> dict[str, Any]:
    """The overlay's card as a script for the exporter's demo."""
    smi = "nvidia_smi_"
    clock = _one(bundle, f"{smi}clocks_current_sm_clock_hz")
    start = bundle.window.start

    def since(times: np.ndarray) -> list[float]:
        return [float(one) for one in np.round(times - start, 3)]

    def values(name: str) -> list[float]:
        return [float(one) for one in _one(bundle, smi + name).values]

    def held(reason: str) -> list[float]:
        total = _one(bundle, f"{smi}clocks_event_reasons_counters_{reason}_seconds")
        shares = np.diff(total.values, prepend=total.values[0]) / np.diff(total.times, prepend=0.0)
        return [float(one) for one in np.clip(shares, 0.0, 1.0)]

    guests = []
    for app in bundle.series(f"{smi}compute_app_used_memory_bytes"):
        own = app.labels["process_name"].startswith("VLLM")
        guests.append(
            {
                "pid": int(app.labels["pid"]),
                "title": app.labels["process_name"],
                "memory_bytes": float(app.values[0]),
                "sm": 0.5 if own else 0.45,
                "starts": since(app.times)[0],
                "ends": since(app.times)[-1] + 2.0,
            }
        )
    card = {
        "uuid": _UUID,
        "name": "NVIDIA H200 (simulated)",
        "bus": "00000000:1B:00.0",
        "times": since(clock.times),
        "sm_mhz": [one / 1e6 for one in clock.values.tolist()],
        "celsius": values("temperature_gpu"),
        "watts": values("power_draw_watts"),
        "busy": values("utilization_gpu_ratio"),
        "reasons": [int(one) for one in values("clocks_event_reasons_active")],
        "held": {
            "sw_thermal": held("sw_thermal_slowdown"),
            "hw_thermal": held("hw_thermal_slowdown"),
            "sw_power_cap": held("sw_power_cap"),
            "hw_power_brake": held("hw_power_brake_slowdown"),
        },
        "guests": guests,
    }
    return {"begins": begins, "cards": [card]}


@contextlib.contextmanager
def _engine(bundle: Bundle, begins: float) -> Iterator[int]:
    """The port of an engine whose page replays the bundle's vLLM series."""
    rows = [one for one in bundle.series() if one.labels.get("job", "").startswith("vllm")]
    start = bundle.window.start

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            now = start + _SPEED * (time.time() - begins)
            lines = []
            for one in rows:
                at = bisect_right(one.times, now) - 1
                if at >= 0 and np.isfinite(one.values[at]):
                    labels = {k: v for k, v in one.labels.items() if k not in ("job", "instance", "__name__")}
                    inner = ",".join(f"{k}={json.dumps(v)}" for k, v in labels.items())
                    lines.append(f"{one.labels['__name__']}{{{inner}}} {float(one.values[at])!r}")
            body = ("\n".join(lines) + "\n").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def _process(command: list[str], ready: str, environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    try:
        until = time.monotonic() + 20
        while True:
            assert process.poll() is None, process.stderr and process.stderr.read().decode()
            with contextlib.suppress(OSError), urlopen(ready, timeout=1) as answer:
                if answer.status == 200:
                    break
            assert time.monotonic() < until, f"{ready} does not answer"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(timeout=10)


@contextlib.contextmanager
def _lived(name: str, folder: Path, checkout: Path) -> Iterator[Incident]:
    """Begin the incident; it is over ``ends`` seconds later, and its Prometheus then still answers."""
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        if os.environ.get("CI") == "true":
            pytest.fail("prometheus is not installed")
        pytest.skip("prometheus is not installed")
    bundle = overlaid(name)
    begins = time.time() + 2.0
    (folder / "script.json").write_text(json.dumps(_script(bundle, begins)))
    exporter_port, store_port = _free_port(), _free_port()
    environment = {**os.environ, "PYTHONPATH": f"{checkout}{os.pathsep}{checkout / 'exporters'}"}
    exporter = [sys.executable, "-c", _FAST_WORLD, str(begins), str(_SPEED), "demo"]
    exporter += ["--script", str(folder / "script.json"), "--listen", f"127.0.0.1:{exporter_port}"]
    exporter += ["--fast", str(max(1.0 / _SPEED, 0.1)), "--slow", str(2.0 / _SPEED)]
    with contextlib.ExitStack() as stack:
        engine_port = stack.enter_context(_engine(bundle, begins))
        stack.enter_context(_process(exporter, f"http://127.0.0.1:{exporter_port}/-/ready", environment))
        pace = int(_SCRAPE_SECONDS * 1000)
        config = f"global: {{scrape_interval: {pace}ms, scrape_timeout: {pace}ms}}\nscrape_configs:\n"
        for job, port in (("llmdiag", exporter_port), ("vllm", engine_port)):
            target = f"{{targets: ['127.0.0.1:{port}'], labels: {{node: node-0}}}}"
            config += f"- job_name: {job}\n  static_configs: [{target}]\n"
        (folder / "prometheus.yml").write_text(config)
        url = f"http://127.0.0.1:{store_port}"
        store = [prometheus, f"--config.file={folder / 'prometheus.yml'}"]
        store += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{store_port}"]
        stack.enter_context(_process(store, f"{url}/-/ready", environment))
        yield Incident(url, begins, bundle.window.end - bundle.window.start, folder)


@contextlib.contextmanager
def _spread(one: Incident) -> Iterator[str]:
    """The URL of a Prometheus that holds what the first one scraped, at the times it stands for."""
    span = f"{int(time.time() - one.begins) + 10}s"
    asked = urlencode({"query": f'{{__name__=~".+"}}[{span}]'})
    with urlopen(f"{one.url}/api/v1/query?{asked}", timeout=20) as answer:
        rows = json.load(answer)["data"]["result"]
    with (one.folder / "all.om").open("w") as out:
        for row in sorted(rows, key=lambda row: row["metric"]["__name__"]):
            metric = row["metric"]
            inner = ",".join(f"{k}={json.dumps(v)}" for k, v in metric.items() if k != "__name__")
            for when, value in row["values"]:
                # Backwards from its end: triage looks at no future.
                spread = one.ends + (when - one.ends) * _SPEED
                out.write(f"{metric['__name__']}{{{inner}}} {value} {spread:.3f}\n")
        out.write("# EOF\n")
    data = one.folder / "spread"
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(one.folder / "all.om"), str(data)]
    subprocess.run(command, check=True, capture_output=True)
    (one.folder / "empty.yml").write_text("scrape_configs: []\n")
    port = _free_port()
    store = [
        "prometheus", f"--config.file={one.folder / 'empty.yml'}", f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with _process(store, f"http://127.0.0.1:{port}/-/ready", dict(os.environ)):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Iterator[dict[str, Incident]]:
    """Both incidents, lived through side by side."""
    with contextlib.ExitStack() as stack:
        incidents = {
            name: stack.enter_context(_lived(name, tmp_path_factory.mktemp(name), checkout))
            for name in _CAUSES
        }
        time.sleep(max(max(one.ends for one in incidents.values()) - time.time() + 0.3, 0.0))
        yield incidents


@pytest.mark.parametrize(("name", "cause"), _CAUSES.items())
def test_triage_names_what_was_scripted(lived: dict[str, Incident], name: str, cause: str) -> None:
    one = lived[name]
    window = ("--from", f"{one.ends - one.seconds + 4.0:.0f}", "--to", f"{one.ends:.0f}")
    with contextlib.nullcontext(one.url) if _SPEED == 1.0 else _spread(one) as url:
        done = subprocess.run(
            [sys.executable, "-m", "diag", "triage", url, "--json", *window],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    print(f"{name}: {verdict['summary']}")
    found = [row for row in verdict["assessments"] if row["id"] == verdict["leading"]]
    assert [(row["id"], row["state"]) for row in found] == [(cause, "supported")], verdict["summary"]
    assert found[0]["scope"]["gpus"], found[0]["scope"]
