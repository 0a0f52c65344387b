"""MIG: whether the GPU is cut into instances, and how full those are."""

from __future__ import annotations

import contextlib
from typing import Any

from diag_exporter.gpu.collectors.topic import GpuCollector, Table, gauge
from diag_exporter.gpu.fleet import Gpu
from diag_exporter.gpu.nvml import NoAnswer, NotFound, Unsupported
from diag_exporter.gpu.readings import Mig, MigInstance

__all__ = ["MigCollector"]

_INSTANCE = ("gpu_instance", "compute_instance")


class MigCollector(GpuCollector[Mig | None]):
    """Nothing is asked about instances while MIG is off: failed look-ups cost more than answers."""

    name = "mig"
    group = "slow"
    families = (
        gauge("mig_mode", "1 if MIG is on", "nvmlDeviceGetMigMode", "the card cannot do MIG"),
        gauge("mig_instances", "MIG devices", "nvmlDeviceGetMigDeviceHandleByIndex", "MIG is off"),
        gauge(
            "mig_memory_total_bytes",
            "Memory of the MIG device",
            "nvmlDeviceGetMemoryInfo of the MIG device",
            "MIG is off",
            *_INSTANCE,
        ),
        gauge(
            "mig_memory_used_bytes",
            "Memory that is allocated on the MIG device",
            "nvmlDeviceGetMemoryInfo of the MIG device",
            "MIG is off",
            *_INSTANCE,
        ),
    )

    def read(self, gpu: Gpu) -> Mig | None:
        mode = gpu.ask("nvmlDeviceGetMigMode")
        if mode is None:
            return None
        if not mode[0]:
            return Mig(False, ())
        most = gpu.kept("mig devices", lambda: gpu.ask("nvmlDeviceGetMaxMigDeviceCount")) or 0
        found = (self._instance(gpu, index) for index in range(most))
        return Mig(True, tuple(one for one in found if one is not None))

    def _instance(self, gpu: Gpu, index: int) -> MigInstance | None:
        call = gpu.library.call
        try:
            handle = call("nvmlDeviceGetMigDeviceHandleByIndex", gpu.handle, index)
            gpu_instance = int(call("nvmlDeviceGetGpuInstanceId", handle))
            compute_instance = int(call("nvmlDeviceGetComputeInstanceId", handle))
        except (NotFound, NoAnswer, Unsupported):
            return None  # a free slot
        memory: Any = None
        with contextlib.suppress(NotFound, NoAnswer, Unsupported):
            memory = call("nvmlDeviceGetMemoryInfo", handle)
        total, used = (None, None) if memory is None else (memory.total, memory.used)
        return MigInstance(gpu_instance, compute_instance, total, used)

    def write(self, table: Table, gpu: Gpu, reading: Mig | None) -> None:
        if reading is None:
            return
        table.put("gpu_mig_mode", reading.enabled, *gpu.labels)
        if not reading.enabled:
            return
        table.put("gpu_mig_instances", len(reading.instances), *gpu.labels)
        for one in reading.instances:
            labels = (*gpu.labels, str(one.gpu_instance), str(one.compute_instance))
            table.put("gpu_mig_memory_total_bytes", one.total, *labels)
            table.put("gpu_mig_memory_used_bytes", one.used, *labels)
