"""A real Prometheus that holds chosen samples, and the samples themselves."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import requests

from diag.signals.frame import Grid, RawSeries
from tests.engines.made_up import START, made_up, recorded
from tests.engines.store import Store, holding
from tests.rules.servers import binary, free_port


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
    with holding(samples, tmp_path_factory.mktemp("prometheus")) as store:
        yield store


@pytest.fixture(scope="session")
def victoria(tmp_path_factory: pytest.TempPathFactory, samples: list[RawSeries]) -> Iterator[Store]:
    """A VictoriaMetrics that holds ``samples``."""
    folder = tmp_path_factory.mktemp("victoria")
    port = free_port()
    command = [
        binary("victoria-metrics"),
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
    """The reference recording, and made-up series for every name in every engine file."""
    return [*recorded(incidents / "context_growth_reference"), *made_up()]


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
