"""Which GPUs there are, which are up, and how the driver fares. This one never fails."""

from __future__ import annotations

from typing import Literal

from diag_exporter.families import Family, Row, Rows
from diag_exporter.gpu.collectors.topic import GpuCollector, Table, gauge
from diag_exporter.gpu.fleet import Gpu
from diag_exporter.gpu.nvml import NvmlError, RestartNeeded
from diag_exporter.gpu.readings import Identity

__all__ = ["IdentityCollector"]


def _own(
    name: str,
    kind: Literal["gauge", "counter", "histogram"],
    text: str,
    *labels: str,
    absence: str = "the GPU part does not run",
    default: bool = True,
) -> Family:
    return Family(f"llmdiag_{name}", kind, text, labels, absence, "the exporter's own count", default)


class IdentityCollector(GpuCollector[Identity]):
    """Last of its group, so that a GPU lost in this pass is down on this page."""

    name = "identity"
    group = "fast"
    families = (
        Family(
            "llmdiag_gpu_info",
            "info",
            "A GPU and its driver",
            ("uuid", "gpu", "name", "driver_version", "pci_bus_id"),
            "the GPU was lost before it told who it is",
            "nvmlDeviceGetUUID, nvmlDeviceGetName, nvmlDeviceGetPciInfo, nvmlSystemGetDriverVersion",
        ),
        gauge(
            "up",
            "1 if the GPU answers, 0 if it is lost, refuses until a reset, or has no driver",
            "any call",
            "never seen since the exporter's start",
        ),
        gauge(
            "reset_required",
            "1 if the GPU answers nothing but that it must be reset",
            "error code 16",
            "never seen since the exporter's start",
        ),
        gauge(
            "persistence_mode",
            "1 if the driver stays loaded without clients",
            "nvmlDeviceGetPersistenceMode",
            "not told",
        ),
        _own("gpu_expected", "gauge", "GPUs there should be: as told, else the most ever seen"),
        _own("gpu_visible", "gauge", "GPUs that answer"),
        _own("nvml_up", "gauge", "1 if the driver's library is open and answers"),
        _own("nvml_restart_needed", "gauge", "1 if only a new exporter process can talk to the new driver"),
        _own("nvml_reloads_total", "counter", "Times the library was loaded anew after the driver changed"),
        _own(
            "nvml_errors_total",
            "counter",
            "Failed calls, without unsupported and not found",
            "error",
            absence="no such failure yet",
        ),
        _own(
            "nvml_function_missing",
            "gauge",
            "1: the driver's library lacks this function",
            "function",
            absence="none is missing",
        ),
        _own("nvml_call_seconds", "histogram", "How long driver calls take"),
        _own("nvml_calls_total", "counter", "Driver calls", "function", default=False),
        _own("nvml_busy_seconds_total", "counter", "Time in driver calls", "function", default=False),
    )

    def collect(self, now: float) -> Rows:
        table = self.table()
        try:
            for gpu, reading in self.fleet.read(now, self.read):
                self.write(table, gpu, reading)
        except (NvmlError, RestartNeeded):
            pass  # what that means is on the page: nothing is up
        self._write_fleet(table)
        self._write_calls(table)
        rows = dict(table.rows())
        histogram = self.fleet.library.statistics.histogram()
        rows["llmdiag_nvml_call_seconds"] = [Row((), histogram)]
        return rows

    def read(self, gpu: Gpu) -> Identity:
        mode = gpu.ask("nvmlDeviceGetPersistenceMode")
        driver = self.fleet.library.driver
        return Identity(gpu.name, driver, gpu.bus, None if mode is None else bool(mode))

    def write(self, table: Table, gpu: Gpu, reading: Identity) -> None:
        table.put("gpu_persistence_mode", reading.persistence, *gpu.labels)

    def _write_fleet(self, table: Table) -> None:
        fleet = self.fleet
        for gpu in fleet.known.values():
            # Who it was is worth knowing of a GPU that is gone, too.
            table.put("gpu_info", 1, *gpu.labels, gpu.name, fleet.library.driver, gpu.bus)
            table.put("gpu_up", fleet.usable and gpu.state == "up", *gpu.labels)
            table.put("gpu_reset_required", gpu.state == "reset_required", *gpu.labels)
        for index in fleet.unnamed:
            table.put("gpu_up", 0, "unknown", str(index))
        table.put("gpu_expected", fleet.expected)
        table.put("gpu_visible", fleet.visible)
        table.put("nvml_up", fleet.usable)
        table.put("nvml_restart_needed", bool(fleet.restart_needed))

    def _write_calls(self, table: Table) -> None:
        library = self.fleet.library
        table.put("nvml_reloads_total", library.reloads)
        for error, count in sorted(library.statistics.errors.items()):
            table.put("nvml_errors_total", count, error)
        for function in sorted(library.statistics.missing):
            table.put("nvml_function_missing", 1, function)
        for function, (calls, seconds) in sorted(library.statistics.calls.items()):
            table.put("nvml_calls_total", calls, function)
            table.put("nvml_busy_seconds_total", seconds, function)

    def close(self) -> None:
        """Leave the driver, at the end."""
        self.fleet.library.close()
