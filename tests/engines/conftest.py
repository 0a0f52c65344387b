"""A real Prometheus that holds chosen samples, and the samples themselves."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import requests

from diag.signals.frame import Grid, RawSeries
from tests.engines.fleet import fleet
from tests.engines.made_up import START, made_up, open_metrics, recorded

Answer = dict[tuple[tuple[str, str], ...], np.ndarray]


@dataclass(frozen=True)
class Store:
    """A running server that answers PromQL."""

    url: str

    def ask(self, query: str, grid: Grid) -> Answer:
        """Range query; values on the grid's times, NaN where the server gives none."""
        reply = requests.post(
            f"{self.url}/api/v1/query_range",
            data={"query": query, "start": grid.start, "end": grid.end, "step": grid.step},
            timeout=20,
        )
        body = reply.json()
        assert body["status"] == "success", f"{body} for {query}"
        return {self._key(row["metric"]): self._values(row["values"], grid) for row in body["data"]["result"]}

    @staticmethod
    def _key(metric: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((name, value) for name, value in metric.items() if name != "__name__"))

    @staticmethod
    def _values(pairs: Sequence[tuple[float, str]], grid: Grid) -> np.ndarray:
        values = np.full(len(grid.times), np.nan)
        for moment, text in pairs:
            values[round((moment - grid.start) / grid.step)] = float(text)
        return values


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server_binary(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"{name} is not installed")
    return found


def await_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended"
        try:
            if requests.get(url, timeout=1).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.05)
    pytest.fail(f"{url} did not become ready")


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory, samples: list[RawSeries]) -> Iterator[Store]:
    """A Prometheus that holds ``samples``."""
    binary, tool = server_binary("prometheus"), server_binary("promtool")
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "samples.om").write_text(open_metrics(samples))
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    subprocess.run(
        [tool, "tsdb", "create-blocks-from", "openmetrics", folder / "samples.om", folder / "data"],
        check=True,
        capture_output=True,
    )
    port = free_port()
    command = [
        binary,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_ready(process, f"http://127.0.0.1:{port}/-/ready")
        yield Store(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.fixture(scope="session")
def victoria(tmp_path_factory: pytest.TempPathFactory, samples: list[RawSeries]) -> Iterator[Store]:
    """A VictoriaMetrics that holds ``samples``."""
    binary = server_binary("victoria-metrics")
    folder = tmp_path_factory.mktemp("victoria")
    port = free_port()
    command = [
        binary,
        f"-storageDataPath={folder}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=100y",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_ready(process, f"http://127.0.0.1:{port}/health")
        lines = [
            json.dumps(
                {
                    "metric": dict(one.labels),
                    "values": one.values[~np.isnan(one.values)].tolist(),
                    "timestamps": np.rint(one.times[~np.isnan(one.values)] * 1000).astype(int).tolist(),
                }
            )
            for one in samples
        ]
        url = f"http://127.0.0.1:{port}"
        requests.post(f"{url}/api/v1/import", data="\n".join(lines), timeout=20).raise_for_status()
        requests.get(f"{url}/internal/force_flush", timeout=20).raise_for_status()
        yield Store(url)
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.fixture(scope="session")
def samples(incidents: Path) -> list[RawSeries]:
    """The reference recording, and made-up series for every name in every engine file, bare and labelled."""
    return [*recorded(incidents / "context_growth_reference"), *made_up(), *fleet()]


@pytest.fixture(scope="session")
def recorded_names(incidents: Path) -> frozenset[str]:
    """Metric names in two recordings, one of them with node_exporter's."""
    bundles = ("context_growth_reference", "kv_cache_exhaustion")
    return frozenset(s.labels["__name__"] for name in bundles for s in recorded(incidents / name))


@pytest.fixture(scope="session")
def grids() -> Callable[[], tuple[Grid, ...]]:
    """Grids that meet the samples in different ways: aligned, shifted, fine, coarse."""
    return lambda: (
        Grid(START, START + 245, 5.0, 30.0),
        Grid(START + 0.5, START + 240, 7.0, 15.0),
        Grid(START - 20, START + 300, 20.0, 61.5),
    )
