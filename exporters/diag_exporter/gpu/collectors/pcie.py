"""The PCIe link against what it could be, and its errors."""

from __future__ import annotations

from diag_exporter.gpu.collectors.topic import GpuCollector, Table, counter, gauge
from diag_exporter.gpu.fleet import Fleet, Gpu
from diag_exporter.gpu.options import GpuOptions
from diag_exporter.gpu.readings import Pcie

__all__ = ["PcieCollector", "Unwrapped"]

_ERRORS = {
    "correctable": 173,
    "naks_received": 174,
    "receiver": 175,
    "bad_tlp": 176,
    "naks_sent": 177,
    "bad_dllp": 178,
    "non_fatal": 179,
    "fatal": 180,
    "unsupported_request": 181,
    "lcrc": 182,
    "lane": 183,
}
_SENT, _RECEIVED = 197, 198  # bytes, in counters of 32 bits
_WRAP = 2**32


class Unwrapped:
    """A 32-bit counter as one that goes on. One that falls from its upper half has wrapped; any other
    that falls was reset, and so is this."""

    def __init__(self) -> None:
        self.total = 0.0
        self._last: float | None = None

    def advance(self, value: float) -> float:
        """Take a reading; the total so far."""
        if self._last is None:
            self.total = value
        elif value >= self._last:
            self.total += value - self._last
        elif _WRAP / 2 < self._last < _WRAP:
            self.total += _WRAP - self._last + value
        else:
            self.total = value
        self._last = value
        return self.total


class PcieCollector(GpuCollector[Pcie]):
    """An idle link shifts down to save power: judge it under load only."""

    name = "pcie"
    group = "slow"
    families = (
        gauge("pcie_link_width", "PCIe lanes in use", "nvmlDeviceGetCurrPcieLinkWidth", "not told"),
        gauge(
            "pcie_link_width_max",
            "PCIe lanes that card and slot allow",
            "nvmlDeviceGetMaxPcieLinkWidth",
            "not told",
        ),
        gauge(
            "pcie_link_generation",
            "PCIe generation in use (idle links shift down)",
            "nvmlDeviceGetCurrPcieLinkGeneration",
            "not told",
        ),
        gauge(
            "pcie_link_generation_max",
            "PCIe generation that card and slot allow",
            "nvmlDeviceGetMaxPcieLinkGeneration",
            "not told",
        ),
        counter("pcie_replays", "PCIe packets sent again", "nvmlDeviceGetPcieReplayCounter", "not told"),
        counter(
            "pcie_errors",
            "PCIe errors by kind",
            "fields 173 to 183",
            "older card or driver",
            "kind",
            default=False,
        ),
        counter(
            "pcie_sent_bytes",
            "Bytes the GPU sent over PCIe",
            "field 197",
            "older card or driver",
            default=False,
        ),
        counter(
            "pcie_received_bytes",
            "Bytes the GPU received over PCIe",
            "field 198",
            "older card or driver",
            default=False,
        ),
    )

    def __init__(self, fleet: Fleet, options: GpuOptions) -> None:
        super().__init__(fleet, options)
        if self.detail:
            fleet.want_fields(self.group, (*_ERRORS.values(), _SENT, _RECEIVED))
        self._moved: dict[tuple[str, int], Unwrapped] = {}

    def read(self, gpu: Gpu) -> Pcie:
        values = self.fleet.fields(gpu, self.group)
        return Pcie(
            width=gpu.ask("nvmlDeviceGetCurrPcieLinkWidth"),
            width_max=gpu.kept("width", lambda: gpu.ask("nvmlDeviceGetMaxPcieLinkWidth")),
            generation=gpu.ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            generation_max=gpu.kept("generation", lambda: gpu.ask("nvmlDeviceGetMaxPcieLinkGeneration")),
            replays=gpu.ask("nvmlDeviceGetPcieReplayCounter"),
            errors={kind: values[one] for kind, one in _ERRORS.items() if one in values},
            sent=self._total(gpu, _SENT, values.get(_SENT)),
            received=self._total(gpu, _RECEIVED, values.get(_RECEIVED)),
        )

    def _total(self, gpu: Gpu, identity: int, value: float | None) -> float | None:
        if value is None:
            return None
        return self._moved.setdefault((gpu.uuid, identity), Unwrapped()).advance(value)

    def write(self, table: Table, gpu: Gpu, reading: Pcie) -> None:
        # Width 0 is what a link that is not there answers; it is no width.
        table.put("gpu_pcie_link_width", reading.width or None, *gpu.labels)
        table.put("gpu_pcie_link_width_max", reading.width_max or None, *gpu.labels)
        table.put("gpu_pcie_link_generation", reading.generation or None, *gpu.labels)
        table.put("gpu_pcie_link_generation_max", reading.generation_max or None, *gpu.labels)
        table.put("gpu_pcie_replays_total", reading.replays, *gpu.labels)
        for kind, count in reading.errors.items():
            table.put("gpu_pcie_errors_total", count, *gpu.labels, kind)
        table.put("gpu_pcie_sent_bytes_total", reading.sent, *gpu.labels)
        table.put("gpu_pcie_received_bytes_total", reading.received, *gpu.labels)
