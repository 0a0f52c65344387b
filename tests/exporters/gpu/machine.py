"""A machine for the GPU collectors: driver, host files, clock; and its page."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from diag_exporter.families import Collector, Family, Histogram, NoData, Row
from diag_exporter.gpu import GpuOptions, collectors
from tests.exporters.gpu.standin import Driver

__all__ = ["Machine"]


class Machine:
    """``run`` makes one pass; ``value`` and ``series`` look at what came out; ``failed`` by topic."""

    def __init__(self, driver: Driver, root: Path) -> None:
        self.driver = driver
        self.root = root
        self.now = 1_700_000_000.0
        self.collectors: list[Collector] = []
        self.families: dict[str, Family] = {}
        self.rows: dict[str, list[Row]] = {}
        self.failed: dict[str, Exception] = {}
        self.start()

    def start(self, **options: Any) -> None:
        """A fresh exporter."""
        self.options = GpuOptions(**{"root": self.root, **options})
        self.collectors = collectors(self.options)
        self.families = {family.name: family for one in self.collectors for family in one.families}

    @property
    def fleet(self) -> Any:
        """What all collectors share."""
        return self.collectors[-1].fleet  # type: ignore[attr-defined]

    def run(self, after: float = 1.0, group: str = "") -> None:
        """One pass ``after`` seconds later; both groups unless told."""
        self.now += after
        self.rows, self.failed = {}, {}
        for collector in self.collectors:
            if group not in ("", collector.group):
                continue
            try:
                for name, rows in collector.collect(self.now).items():
                    self.rows.setdefault(name, []).extend(rows)
            except NoData:
                pass
            except Exception as error:
                self.failed[collector.name] = error

    def series(self, name: str) -> dict[tuple[str, ...], float]:
        """Value by label values."""
        rows = self.rows.get(f"llmdiag_{name}", [])
        return {row.labels: row.value for row in rows if not isinstance(row.value, Histogram)}

    def value(self, name: str, gpu: int = 0, *more: str) -> float | None:
        """One series of one GPU; None if absent."""
        return self.series(name).get((self.uuid(gpu), str(gpu), *more))

    def uuid(self, gpu: int) -> str:
        return f"GPU-{gpu:08x}-0000-0000-0000-000000000000"

    def process(
        self, pid: int, *command: str, cgroup: str = "/user.slice", parent: int = 1, cpus: str = "0-15"
    ) -> None:
        """A process in the host's /proc."""
        folder = self.root / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{pid} ({command[0][-15:]}) S {parent} 1 1")
        (folder / "cmdline").write_bytes("\0".join(command).encode() + b"\0")
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "status").write_text(f"Name:\tx\nCpus_allowed_list:\t{cpus}\n")

    def place(self, gpu: int, node: int, cpus: str) -> None:
        """Where a GPU is attached, as sysfs tells."""
        folder = self.root / "sys/bus/pci/devices" / f"0000:{0x10 + gpu:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
        (folder / "local_cpulist").write_text(f"{cpus}\n")

    def page(self, *prefixes: str) -> str:
        """The exposition text of families that begin with one of ``prefixes``."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Page(self, prefixes))
        return generate_latest(registry).decode()


@dataclasses.dataclass(eq=False)
class _Page:
    machine: Machine
    prefixes: tuple[str, ...]

    def collect(self) -> Iterator[Any]:
        for name, rows in self.machine.rows.items():
            if not name.startswith(tuple(f"llmdiag_{one}" for one in self.prefixes or ("",))):
                continue
            family = self.machine.families[name]
            made = _KINDS[family.kind](name, family.help, labels=family.labels)
            for row in rows:
                assert len(row.labels) == len(family.labels), name
                if isinstance(row.value, Histogram):
                    made.add_metric(row.labels, _buckets(row.value), row.value.total)
                elif family.kind == "info":
                    made.add_metric((), dict(zip(family.labels, row.labels, strict=True)))
                else:
                    made.add_metric(row.labels, row.value)
            yield made


_KINDS: dict[str, Any] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
    "info": lambda name, text, labels: InfoMetricFamily(name.removesuffix("_info"), text),  # noqa: ARG005
}


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == math.inf else str(bound), float(total)))
    return buckets
