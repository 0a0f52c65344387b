"""One topic a file; this is the table of contents, in the order in which they are asked."""

from __future__ import annotations

from typing import Any

from diag_exporter.families import Collector
from diag_exporter.gpu.collectors.clocks import ClocksCollector
from diag_exporter.gpu.collectors.ecc import EccCollector
from diag_exporter.gpu.collectors.identity import IdentityCollector
from diag_exporter.gpu.collectors.mig import MigCollector
from diag_exporter.gpu.collectors.nvlink import NvLinkCollector
from diag_exporter.gpu.collectors.pcie import PcieCollector
from diag_exporter.gpu.collectors.power import PowerCollector
from diag_exporter.gpu.collectors.processes import ProcessesCollector
from diag_exporter.gpu.collectors.remap import RemapCollector
from diag_exporter.gpu.collectors.thermals import ThermalsCollector
from diag_exporter.gpu.collectors.topic import GpuCollector
from diag_exporter.gpu.collectors.topology import TopologyCollector
from diag_exporter.gpu.collectors.usage import UsageCollector
from diag_exporter.gpu.collectors.xid import XidCollector
from diag_exporter.gpu.fleet import Fleet
from diag_exporter.gpu.host import Host
from diag_exporter.gpu.options import GpuOptions
from diag_exporter.gpu.survey import Survey

__all__ = ["MINIMAL", "TOPICS", "build"]

TOPICS = (
    "clocks", "thermals", "power", "usage", "xid", "processes", "topology", "ecc", "remap", "pcie", "nvlink",
    "mig", "identity",
)  # fmt: skip
"""Every topic. ``identity`` tells which GPUs are up and is never off."""

MINIMAL = frozenset({"clocks", "thermals", "power", "usage", "xid", "identity"})
"""Topics of the profile minimal."""


def build(fleet: Fleet, options: GpuOptions) -> list[Collector]:
    """The collectors that the options ask for; all share the fleet and one look at processes."""
    unknown = options.without - set(TOPICS) | options.without & {"identity"}
    if unknown:
        topics = ", ".join(one for one in TOPICS if one != "identity")
        raise ValueError(f"no GPU topic to switch off: {', '.join(sorted(unknown))} (there are {topics})")
    host = Host(options.root)
    survey = Survey(fleet, host, options)
    simple: tuple[type[GpuCollector[Any]], ...] = (
        ClocksCollector, ThermalsCollector, PowerCollector, UsageCollector, XidCollector, EccCollector,
        RemapCollector, PcieCollector, NvLinkCollector, MigCollector, IdentityCollector,
    )  # fmt: skip
    every: dict[str, GpuCollector[Any]] = {}
    wanted = MINIMAL if options.profile == "minimal" else frozenset(TOPICS)
    for kind in simple:
        if kind.name in wanted - options.without:
            every[kind.name] = kind(fleet, options)
    if "processes" in wanted - options.without:
        every["processes"] = ProcessesCollector(fleet, options, survey)
    if "topology" in wanted - options.without:
        every["topology"] = TopologyCollector(fleet, options, survey, host)
    return [every[name] for name in TOPICS if name in every]
