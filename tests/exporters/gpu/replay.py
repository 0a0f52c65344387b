"""A recorded nvidia_gpu_exporter page of one real GPU, as the state of the stand-in driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.exporters.gpu.standin import Driver

__all__ = ["RECORDED", "recorded", "replay"]

Numbers = dict[str, float]

# Series of the recorded page -> series of ours (both without prefix and GPU labels).
RECORDED: dict[str, tuple[str, ...]] = {
    "clocks_current_sm_clock_hz": ("gpu_sm_clock_hertz",),
    "clocks_max_sm_clock_hz": ("gpu_sm_clock_max_hertz",),
    "clocks_current_memory_clock_hz": ("gpu_memory_clock_hertz",),
    "clocks_event_reasons_gpu_idle": ("gpu_clock_event_active", "idle"),
    "clocks_event_reasons_sw_power_cap": ("gpu_clock_event_active", "sw_power_cap"),
    "clocks_event_reasons_counters_hw_thermal_slowdown_seconds": (
        "gpu_clock_event_seconds_total",
        "hw_thermal",
    ),
    "temperature_gpu": ("gpu_temperature_celsius",),
    "temperature_memory": ("gpu_memory_temperature_celsius",),
    "temperature_gpu_tlimit": ("gpu_temperature_margin_celsius",),
    "power_draw_watts": ("gpu_power_watts",),
    "enforced_power_limit_watts": ("gpu_power_limit_watts",),
    "power_default_limit_watts": ("gpu_power_default_limit_watts",),
    "utilization_gpu_ratio": ("gpu_utilization_ratio",),
    "utilization_memory_ratio": ("gpu_memory_utilization_ratio",),
    "memory_total_bytes": ("gpu_memory_total_bytes",),
    "memory_used_bytes": ("gpu_memory_used_bytes",),
    "memory_reserved_bytes": ("gpu_memory_reserved_bytes",),
    "pcie_link_width_current": ("gpu_pcie_link_width",),
    "pcie_link_width_max": ("gpu_pcie_link_width_max",),
    "pcie_link_gen_current": ("gpu_pcie_link_generation",),
    "ecc_errors_uncorrected_volatile_total": ("gpu_ecc_errors_total", "uncorrected", "volatile"),
    "remapped_rows_uncorrectable": ("gpu_remapped_rows_total", "uncorrectable"),
    "remapped_rows_pending": ("gpu_row_remap_pending",),
    "gpu_recovery_action": ("gpu_recovery_action",),
    "persistence_mode": ("gpu_persistence_mode",),
    "mig_mode_current": ("gpu_mig_mode",),
}


def recorded(page: Path) -> tuple[Numbers, list[tuple[int, str, float]]]:
    """Numbers by name, and the processes (pid, name, bytes)."""
    numbers: Numbers = {}
    processes: list[tuple[int, str, float]] = []
    for family in text_string_to_metric_families(page.read_text()):
        for sample in family.samples:
            name = sample.name.removeprefix("nvidia_smi_")
            if name == "compute_app_used_memory_bytes":
                processes.append((int(sample.labels["pid"]), sample.labels["process_name"], sample.value))
            elif "pid" not in sample.labels:
                numbers[name] = sample.value
    return numbers, sorted(processes)


def replay(driver: Driver, numbers: Numbers, processes: list[tuple[int, str, float]]) -> None:
    """One GPU that answers the recorded numbers, in the driver's own units."""
    driver.state.count = 1
    gpu = driver.gpu(0)

    def put(member: str, name: str, unit: Callable[[float], float] = lambda value: value) -> None:
        setattr(gpu, member, round(unit(numbers[name])))

    for member, name in (("sm", "sm"), ("memory_clock", "memory")):
        put(member, f"clocks_current_{name}_clock_hz", lambda value: value / 1e6)
        put(f"{member}_max", f"clocks_max_{name}_clock_hz", lambda value: value / 1e6)
    put("reasons", "clocks_event_reasons_active")
    put("reasons_known", "clocks_event_reasons_supported")
    put("temperature", "temperature_gpu")
    put("margin", "temperature_gpu_tlimit")
    put("power", "power_draw_watts", lambda value: value * 1000)
    put("limit", "enforced_power_limit_watts", lambda value: value * 1000)
    put("default_limit", "power_default_limit_watts", lambda value: value * 1000)
    put("busy", "utilization_gpu_ratio", lambda value: value * 100)
    put("memory_busy", "utilization_memory_ratio", lambda value: value * 100)
    for member in ("total", "used", "free", "reserved"):
        put(member, f"memory_{member}_bytes")
    put("width", "pcie_link_width_current")
    put("width_max", "pcie_link_width_max")
    put("generation", "pcie_link_gen_current")
    put("generation_max", "pcie_link_gen_max")
    put("persistence", "persistence_mode")
    for place, name in enumerate(("correctable", "uncorrectable", "pending", "failure")):
        gpu.remap[place] = int(numbers[f"remapped_rows_{name}"])
    for identity, name in ((74, "sw_power_cap"), (269, "sw_thermal_slowdown"), (270, "hw_thermal_slowdown")):
        driver.field(0, identity, numbers[f"clocks_event_reasons_counters_{name}_seconds"] * 1e9)
    driver.field(0, 82, numbers["temperature_memory"], kind=1)
    driver.field(0, 230, numbers["gpu_recovery_action"], kind=1)
    gpu.links = gpu.links_up = 0  # a card on PCIe; the recorded page tells of no NVLink
    for pid, _, memory in processes:
        driver.run(0, pid, memory=int(memory))
