"""A real Prometheus for as long as it is needed, holding stages."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import requests

from dashboards.src.pictures.stages import Staged
from diag.errors import DiagError
from diag.signals.frame import RawSeries

__all__ = ["holding"]

_START_SECONDS = 20.0


@contextmanager
def holding(stages: Iterable[Staged], folder: Path) -> Iterator[str]:
    """The URL of a Prometheus that holds ``stages``, kept below ``folder``; it ends with the block.

    Raises ``DiagError`` where prometheus or promtool is not installed."""
    data = folder / "data"
    for stage in stages:
        _fill(data, stage, folder / "samples.om")
    config = folder / "prometheus.yml"
    config.write_text("{}\n", encoding="utf-8")
    port = _free_port()
    command = [
        _program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield _ready(f"http://127.0.0.1:{port}", server)
    finally:
        server.terminate()
        server.wait(10)


def _fill(data: Path, stage: Staged, text: Path) -> None:
    """Write one stage's blocks. One at a time: promtool reads its input once for every two hours between the
    first sample and the last."""
    with text.open("w", encoding="utf-8") as out:
        out.writelines(map(_lines, stage.series))
        out.write("# EOF\n")
    command = [
        _program("promtool"),
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        "--quiet",
        str(text),
        str(data),
    ]
    subprocess.run(command, check=True, capture_output=True)


def _lines(series: RawSeries) -> str:
    pairs = ",".join(
        f"{name}={json.dumps(value)}" for name, value in series.labels.items() if name != "__name__"
    )
    head = f"{series.labels['__name__']}{{{pairs}}}"
    there = np.isfinite(series.values)
    times, values = series.times[there].tolist(), series.values[there].tolist()
    return "".join([f"{head} {value!r} {moment:.3f}\n" for moment, value in zip(times, values, strict=True)])


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise DiagError(f"{name} is not installed", hint="install the package prometheus")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ready(url: str, server: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise DiagError("prometheus ended before it was ready")
        try:
            if requests.get(f"{url}/-/ready", timeout=1).ok:
                return url
        except requests.ConnectionError:
            pass
        time.sleep(0.05)
    raise DiagError("prometheus did not become ready")
