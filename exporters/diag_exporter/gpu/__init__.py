"""GPUs through NVIDIA's management library.

    nvml (calls, errors)  ->  fleet (which GPUs are up)  ->  readings  ->  collectors (rows)

Everything runs in the sampling thread. A lost GPU, a reloaded driver and a missing function are states
that are exported; none of them ends the exporter.
"""

from __future__ import annotations

from diag_exporter.families import Collector
from diag_exporter.gpu.collectors import MINIMAL, TOPICS, build
from diag_exporter.gpu.fleet import Fleet
from diag_exporter.gpu.nvml import Library
from diag_exporter.gpu.options import GpuOptions

__all__ = ["MINIMAL", "TOPICS", "GpuOptions", "collectors"]


def collectors(options: GpuOptions | None = None) -> list[Collector]:
    """The GPU collectors; ``ValueError`` for an unknown topic. Nothing is opened before the first
    ``collect``: without a driver they say so on the page and try again."""
    options = options or GpuOptions()
    fleet = Fleet(Library(), expected=options.expected, on_restart=options.on_restart)
    return build(fleet, options)
