"""A driver without a GPU: the real nvidia-ml-py loads a library that the tests compile."""

from __future__ import annotations

import _ctypes
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.exporters.gpu.machine import Machine
from tests.exporters.gpu.standin import Driver, build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, compiled once."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def _loaded(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    path = tmp_path_factory.mktemp("state") / "state"
    driver = Driver(path)
    os.environ["STANDIN_STATE"] = str(path)
    # The loader matches the binding's bare name with the SONAME of what is loaded already.
    mapped = ctypes.CDLL(str(library))
    yield driver
    _ctypes.dlclose(mapped._handle)
    del os.environ["STANDIN_STATE"]


@pytest.fixture
def driver(_loaded: Driver) -> Iterator[Driver]:
    """Eight healthy GPUs and a binding that has seen nothing yet."""
    _loaded.reset()
    yield _loaded
    _loaded.reset()
    while pynvml._nvmlLib_refcount:
        pynvml.nvmlShutdown()


@pytest.fixture
def machine(driver: Driver, tmp_path: Path) -> Machine:
    """The driver, a host's /proc and /sys, a clock, and the exporter's GPU part on top."""
    return Machine(driver, tmp_path / "root")
