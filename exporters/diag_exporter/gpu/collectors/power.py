"""Power, the limit that holds, and energy."""

from __future__ import annotations

from diag_exporter.gpu.collectors.topic import GpuCollector, Table, counter, gauge, scaled
from diag_exporter.gpu.fleet import Gpu
from diag_exporter.gpu.readings import Power

__all__ = ["PowerCollector"]

_BASE = 1e-3  # the driver counts in mW and mJ


class PowerCollector(GpuCollector[Power]):
    """The enforced limit is read each time: a cap set in an incident must show at once."""

    name = "power"
    group = "fast"
    families = (
        gauge(
            "power_watts",
            "Power drawn by the board (mean over one second on Ampere and later)",
            "nvmlDeviceGetPowerUsage",
            "not told",
        ),
        gauge(
            "power_limit_watts", "Power limit that is enforced", "nvmlDeviceGetEnforcedPowerLimit", "not told"
        ),
        gauge(
            "power_default_limit_watts",
            "Power limit the card is made with; an enforced limit below it was set by somebody",
            "nvmlDeviceGetPowerManagementDefaultLimit",
            "not told",
        ),
        counter(
            "energy_joules",
            "Energy used since the driver was loaded",
            "nvmlDeviceGetTotalEnergyConsumption",
            "older than Volta",
        ),
    )

    def read(self, gpu: Gpu) -> Power:
        default = gpu.kept("default limit", lambda: gpu.ask("nvmlDeviceGetPowerManagementDefaultLimit"))
        return Power(
            draw=scaled(gpu.ask("nvmlDeviceGetPowerUsage"), _BASE),
            limit=scaled(gpu.ask("nvmlDeviceGetEnforcedPowerLimit"), _BASE),
            default_limit=scaled(default, _BASE),
            energy=scaled(gpu.ask("nvmlDeviceGetTotalEnergyConsumption"), _BASE),
        )

    def write(self, table: Table, gpu: Gpu, reading: Power) -> None:
        table.put("gpu_power_watts", reading.draw, *gpu.labels)
        table.put("gpu_power_limit_watts", reading.limit, *gpu.labels)
        table.put("gpu_power_default_limit_watts", reading.default_limit, *gpu.labels)
        table.put("gpu_energy_joules_total", reading.energy, *gpu.labels)
