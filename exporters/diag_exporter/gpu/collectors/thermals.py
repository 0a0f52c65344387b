"""How hot it is, and how far from where the clocks are taken down."""

from __future__ import annotations

from diag_exporter.gpu.collectors.topic import GpuCollector, Table, gauge
from diag_exporter.gpu.fleet import Gpu
from diag_exporter.gpu.readings import Thermals

__all__ = ["ThermalsCollector"]

_MEMORY_TEMPERATURE = 82  # field, °C
_SENSOR = 0
_SHUTDOWN, _SLOWDOWN, _MEMORY_MAX = 0, 1, 2  # nvmlTemperatureThresholds_t


class ThermalsCollector(GpuCollector[Thermals]):
    """Thresholds hardly ever change and are kept for ten minutes."""

    name = "thermals"
    group = "fast"
    fields = (_MEMORY_TEMPERATURE,)
    families = (
        gauge("temperature_celsius", "Core temperature", "nvmlDeviceGetTemperatureV", "not told"),
        gauge("memory_temperature_celsius", "Memory temperature", "field 82", "the card has no such sensor"),
        gauge(
            "temperature_margin_celsius",
            "Degrees left before the GPU slows itself down",
            "nvmlDeviceGetMarginTemperature",
            "older than Ampere, or an older driver",
        ),
        gauge(
            "temperature_slowdown_celsius",
            "Core temperature at which hardware slows the GPU down",
            "nvmlDeviceGetTemperatureThreshold(SLOWDOWN)",
            "the card tells margins instead",
        ),
        gauge(
            "temperature_shutdown_celsius",
            "Core temperature at which the GPU switches itself off",
            "nvmlDeviceGetTemperatureThreshold(SHUTDOWN)",
            "the card tells margins instead",
        ),
        gauge(
            "memory_temperature_max_celsius",
            "Memory temperature at which the GPU is slowed down by software",
            "nvmlDeviceGetTemperatureThreshold(MEM_MAX)",
            "the card tells margins instead",
        ),
    )

    def read(self, gpu: Gpu) -> Thermals:
        core = gpu.ask("nvmlDeviceGetTemperatureV", _SENSOR)
        if core is None:  # drivers before 560; the older call goes in CUDA 14
            core = gpu.ask("nvmlDeviceGetTemperature", _SENSOR)
        return Thermals(
            core=core,
            memory=self.field(gpu, _MEMORY_TEMPERATURE),
            margin=gpu.ask("nvmlDeviceGetMarginTemperature"),
            slowdown=_threshold(gpu, _SLOWDOWN),
            shutdown=_threshold(gpu, _SHUTDOWN),
            memory_max=_threshold(gpu, _MEMORY_MAX),
        )

    def write(self, table: Table, gpu: Gpu, reading: Thermals) -> None:
        table.put("gpu_temperature_celsius", reading.core, *gpu.labels)
        table.put("gpu_memory_temperature_celsius", reading.memory, *gpu.labels)
        table.put("gpu_temperature_margin_celsius", reading.margin, *gpu.labels)
        table.put("gpu_temperature_slowdown_celsius", reading.slowdown, *gpu.labels)
        table.put("gpu_temperature_shutdown_celsius", reading.shutdown, *gpu.labels)
        table.put("gpu_memory_temperature_max_celsius", reading.memory_max, *gpu.labels)


def _threshold(gpu: Gpu, which: int) -> float | None:
    found: float | None = gpu.kept(
        f"threshold {which}", lambda: gpu.ask("nvmlDeviceGetTemperatureThreshold", which)
    )
    return found
