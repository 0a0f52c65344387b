"""Remapped memory rows, and what the driver wants done about the GPU."""

from __future__ import annotations

from diag_exporter.gpu.collectors.topic import GpuCollector, Table, counter, gauge
from diag_exporter.gpu.fleet import Gpu
from diag_exporter.gpu.readings import Remap

__all__ = ["RemapCollector"]

_RECOVERY_ACTION = 230  # field


class RemapCollector(GpuCollector[Remap]):
    """Pending asks for a reset, failure for another card."""

    name = "remap"
    group = "slow"
    fields = (_RECOVERY_ACTION,)
    families = (
        counter(
            "remapped_rows",
            "Memory rows replaced by spare ones over the card's life",
            "nvmlDeviceGetRemappedRows",
            "older than Ampere",
            "cause",
        ),
        gauge(
            "row_remap_pending",
            "1 if rows will be replaced at the next reset",
            "nvmlDeviceGetRemappedRows",
            "older than Ampere",
        ),
        gauge(
            "row_remap_failure",
            "1 if a row could not be replaced: the card is to be exchanged",
            "nvmlDeviceGetRemappedRows",
            "older than Ampere",
        ),
        gauge(
            "recovery_action",
            "What the driver asks for: 0 nothing, 1 GPU reset, 2 reboot, 3 drain peers, 4 drain and reset,"
            " 5 recover the IMEX domain, 6 bus reset, 7 system reboot",
            "field 230",
            "an older driver or card",
        ),
    )

    def read(self, gpu: Gpu) -> Remap:
        answer = gpu.ask("nvmlDeviceGetRemappedRows")
        action = self.field(gpu, _RECOVERY_ACTION)
        if answer is None:
            return Remap({}, None, None, action)
        correctable, uncorrectable, pending, failure = answer
        rows = {"correctable": float(correctable), "uncorrectable": float(uncorrectable)}
        return Remap(rows, bool(pending), bool(failure), action)

    def write(self, table: Table, gpu: Gpu, reading: Remap) -> None:
        for cause, count in reading.rows.items():
            table.put("gpu_remapped_rows_total", count, *gpu.labels, cause)
        table.put("gpu_row_remap_pending", reading.pending, *gpu.labels)
        table.put("gpu_row_remap_failure", reading.failure, *gpu.labels)
        table.put("gpu_recovery_action", reading.action, *gpu.labels)
