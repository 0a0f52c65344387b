"""The overlaid incidents by name: which shipped recording, which overlay, since when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from diag.errors import UsageError
from diag.model import Window
from diag.simulate.overlays import (
    gateway_slow,
    gpu_calm,
    gpu_neighbour,
    gpu_power_brake,
    gpu_thermal,
    host_leak,
)
from diag.simulate.parts import Bundle, load, save
from diag.simulate.stretch import cut, slow_down

__all__ = ["OVERLAID", "Overlaid", "overlaid", "write_overlaid"]

_PACE = 5.0
_RUN_IN_SECONDS = 16.0


@dataclass(frozen=True, slots=True)
class Overlaid:
    """One incident made of a recording and an overlay. ``base`` is a shipped recording's name;
    ``ruled_out`` are the hypotheses that its data can exclude with numbers."""

    name: str
    base: str
    text: str
    make: Callable[[Bundle], Bundle]
    ruled_out: tuple[str, ...] = ()


def _paced(recording: Bundle) -> Bundle:
    """The healthy recording at the pace of a model that keeps a GPU busy.

    The recorded model is tiny: 5 ms a token and one request at a time would leave an H200 idle, and a
    third of its clock would cost nobody anything. Five times slower, a handful of requests run at once.
    The first seconds go, since requests that began before the recording are missing from them."""
    window = recording.window
    slower = slow_down(recording, lambda times: np.full(times.shape, _PACE))
    paced = cut(slower, Window(window.start + _RUN_IN_SECONDS, window.end))
    return paced.with_note(f"all serving times of the recording are stretched by {_PACE:.0f} throughout.")


def _later(recording: Bundle, seconds: float) -> float:
    return recording.window.start + seconds


_ALL = (
    Overlaid(
        "context_growth_gpu",
        "context_growth",
        "context_growth with simulated, calm GPU series and a batch job on its own schedule",
        gpu_calm,
        ruled_out=("noisy_neighbour", "power_cap", "thermal_throttle"),
    ),
    Overlaid(
        "healthy_thermal",
        "healthy",
        "healthy traffic on a simulated GPU whose cooling fails",
        lambda recording: gpu_thermal(_paced(recording), onset=_later(recording, 85.0)),
    ),
    Overlaid(
        "healthy_power_brake",
        "healthy",
        "healthy traffic on a simulated GPU under a power brake",
        lambda recording: gpu_power_brake(_paced(recording), onset=_later(recording, 95.0)),
    ),
    Overlaid(
        "healthy_neighbour",
        "healthy",
        "healthy traffic on a simulated GPU that another process uses in spells",
        lambda recording: gpu_neighbour(_paced(recording), onset=_later(recording, 78.0)),
    ),
    Overlaid(
        "healthy_leak",
        "healthy",
        "healthy traffic through a simulated chat backend that leaks memory",
        lambda recording: host_leak(recording, onset=_later(recording, 105.0)),
    ),
    Overlaid(
        "healthy_gateway",
        "healthy",
        "healthy traffic through a simulated balancer that is slow to connect",
        lambda recording: gateway_slow(recording, onset=_later(recording, 95.0)),
    ),
)

OVERLAID: dict[str, Overlaid] = {entry.name: entry for entry in _ALL}
"""Every overlaid incident by name."""


def overlaid(name: str) -> Bundle:
    """Make the incident ``name`` from its shipped recording; always the same.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in OVERLAID:
        known = ", ".join(OVERLAID)
        raise UsageError(f"no simulated incident is called {name!r}", hint=f"choose from {known}")
    entry = OVERLAID[name]
    with as_file(files("diag") / "_shipped" / "incidents" / f"{entry.base}.tar.gz") as archive:
        recording = load(archive)
    return entry.make(recording).with_meta(name=name)


def write_overlaid(name: str, folder: Path) -> Path:
    """Write the incident ``name`` as a bundle to ``folder`` and return the folder."""
    return save(overlaid(name), folder)
