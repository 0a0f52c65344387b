"""How busy the GPU is and how full its memory."""

from __future__ import annotations

from diag_exporter.gpu.collectors.topic import GpuCollector, Table, gauge
from diag_exporter.gpu.fleet import Gpu
from diag_exporter.gpu.readings import Usage

__all__ = ["UsageCollector"]

_MEMORY_V2 = 0x02000028  # size 40, version 2: the one that tells what the driver keeps for itself


class UsageCollector(GpuCollector[Usage]):
    """An engine takes its memory at the start: full is healthy, and leaks do not show here."""

    name = "usage"
    group = "fast"
    families = (
        gauge(
            "utilization_ratio",
            "Share of time with any kernel running",
            "nvmlDeviceGetUtilizationRates",
            "MIG is on",
        ),
        gauge(
            "memory_utilization_ratio",
            "Share of time with memory being read or written",
            "nvmlDeviceGetUtilizationRates",
            "MIG is on",
        ),
        gauge("memory_total_bytes", "Memory of the GPU", "nvmlDeviceGetMemoryInfo", "not told"),
        gauge("memory_used_bytes", "Memory that is allocated", "nvmlDeviceGetMemoryInfo", "not told"),
        gauge(
            "memory_reserved_bytes",
            "Memory the driver keeps for itself",
            "nvmlDeviceGetMemoryInfo version 2",
            "a driver before 510",
        ),
    )

    def read(self, gpu: Gpu) -> Usage:
        rates = gpu.ask("nvmlDeviceGetUtilizationRates")
        memory = gpu.ask("nvmlDeviceGetMemoryInfo", _MEMORY_V2)
        reserved = None if memory is None else memory.reserved
        if memory is None:
            memory = gpu.ask("nvmlDeviceGetMemoryInfo")
        return Usage(
            busy=None if rates is None else _share(rates.gpu),
            memory_busy=None if rates is None else _share(rates.memory),
            total=None if memory is None else memory.total,
            used=None if memory is None else memory.used,
            reserved=reserved,
        )

    def write(self, table: Table, gpu: Gpu, reading: Usage) -> None:
        table.put("gpu_utilization_ratio", reading.busy, *gpu.labels)
        table.put("gpu_memory_utilization_ratio", reading.memory_busy, *gpu.labels)
        table.put("gpu_memory_total_bytes", reading.total, *gpu.labels)
        table.put("gpu_memory_used_bytes", reading.used, *gpu.labels)
        table.put("gpu_memory_reserved_bytes", reading.reserved, *gpu.labels)


def _share(percent: int) -> float | None:
    # More than all of the time is no share but a blank.
    return percent / 100 if percent <= 100 else None
