"""A local VictoriaMetrics for the length of a measurement, and the naive way of reading it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.windows import Line

__all__ = ["PULL_EVERYTHING", "filled", "victoria_metrics"]

# The leanest way to read every sample: the export stream, typed JSON lines, straight into arrays.
PULL_EVERYTHING = """
import sys, urllib.request
import msgspec, numpy
class Row(msgspec.Struct):
    metric: dict[str, str]
    values: list[float]
    timestamps: list[int]
decode = msgspec.json.Decoder(Row).decode
samples = 0
with urllib.request.urlopen(sys.argv[1]) as stream:
    for line in stream:
        row = decode(line)
        samples += len(numpy.asarray(row.values)) + 0 * len(numpy.asarray(row.timestamps))
print(samples)
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[str | None]:
    """The base URL of an empty server while the block runs; None when none is installed."""
    program = shutil.which("victoria-metrics")
    if program is None:
        yield None
        return
    address = f"127.0.0.1:{_free_port()}"
    command = [
        program,
        f"-storageDataPath={folder}",
        f"-httpListenAddr={address}",
        "-retentionPeriod=100y",
        "-search.latencyOffset=0s",
        "-search.maxUniqueTimeseries=1000000",
    ]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://{address}"
        deadline = time.monotonic() + 20
        while not _answers(f"{url}/health"):
            if time.monotonic() > deadline or server.poll() is not None:
                raise RuntimeError("victoria-metrics did not start")
            time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=20)


def filled(url: str, lines: list[Line], series: int, start: int, step_seconds: int) -> int:
    """Import ``lines`` once for each instance until ``series`` are there; return how many there are.

    The text of the values is made once: the instances differ in their labels only.
    """
    times = [1000 * (start + index * step_seconds) for index in range(len(lines[0].values))]
    tails = [
        f',"values":{json.dumps(line.values.tolist())},"timestamps":{json.dumps(times)}}}\n' for line in lines
    ]
    written = 0
    for instance in range(-(-series // len(lines))):
        rows = []
        for line, tail in zip(lines, tails, strict=True):
            if written == series:
                break
            host = f"node-{instance}"
            labels = {**line.labels, "instance": f"{host}:{line.labels['instance'].rpartition(':')[2]}"}
            rows.append(f'{{"metric":{json.dumps(labels)}{tail}')
            written += 1
        body = "".join(rows).encode()
        urllib.request.urlopen(urllib.request.Request(f"{url}/api/v1/import", data=body)).close()
    urllib.request.urlopen(f"{url}/internal/force_flush").close()
    return written
