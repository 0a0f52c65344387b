"""nvidia_gpu_exporter's page of a host, with ``--query-compute-apps``; its cards have no host name."""

from __future__ import annotations

import numpy as np

from diag.model import Floats
from diag.simulate.gpu import H200
from diag.simulate.observed import Run
from diag.simulate.telemetry.cards import Reading, pci_of
from diag.simulate.telemetry.page import Page, forever

__all__ = ["nvidia_smi_page"]

_TRAINER = "/opt/jobs/trainer"
_ENGINE = "VLLM::EngineCore"


def nvidia_smi_page(run: Run, host: str, readings: list[Reading]) -> Page:
    """``job="nvidia_gpu_exporter"``; hertz, bytes and seconds, as it names them."""
    seconds = np.full(run.times.shape, 0.04)
    page = Page("nvidia_gpu_exporter", f"{host}:9835", {"node": host}, run.times, forever(21.0), seconds)
    for reading in readings:
        labels = {"uuid": reading.uuid}
        _sensors(page, reading, labels)
        _reasons(page, reading, labels)
        _processes(page, reading, labels)
        identity = {"index": str(reading.card.index), "name": f"{H200.model} (simulated)"}
        page.gauge("nvidia_smi_gpu_info", 1.0, pci_bus_id=pci_of(reading.card.index), **identity, **labels)
    return page


def _sensors(page: Page, reading: Reading, labels: dict[str, str]) -> None:
    measured: dict[str, tuple[Floats, int]] = {
        "temperature_gpu": (reading.celsius, 0),
        "temperature_memory": (reading.memory_celsius, 0),
        "temperature_gpu_tlimit": (np.maximum(H200.slowdown_celsius - reading.celsius, 0.0), 0),
        "power_draw_watts": (reading.row("power_watts"), 2),
        "power_draw_instant_watts": (reading.row("power_watts"), 2),
    }
    for name, (row, digits) in measured.items():
        page.measured(f"nvidia_smi_{name}", row, digits, **labels)
    exact: dict[str, Floats | float] = {
        "clocks_current_sm_clock_hz": reading.clock_mhz * 1e6,
        "clocks_max_sm_clock_hz": H200.max_clock_mhz * 1e6,
        "clocks_current_memory_clock_hz": H200.memory_clock_mhz * 1e6,
        "enforced_power_limit_watts": reading.row("power_limit_watts"),
        "power_default_limit_watts": reading.default_limit_watts,
        "memory_used_bytes": reading.used_bytes,
        "memory_free_bytes": H200.memory_bytes - reading.used_bytes,
        "memory_total_bytes": H200.memory_bytes,
        "ecc_errors_uncorrected_volatile_total": reading.ecc_errors,
        "remapped_rows_uncorrectable": np.floor(reading.ecc_errors / 2.0),
        "pcie_link_gen_current": reading.generation,
        "pcie_link_gen_max": 5.0,
        "pcie_link_width_current": reading.lanes,
        "pcie_link_width_max": 16.0,
    }
    for name, value in exact.items():
        page.gauge(f"nvidia_smi_{name}", value, **labels)
    page.gauge("nvidia_smi_utilization_gpu_ratio", reading.utilization, 2, **labels)
    page.gauge("nvidia_smi_utilization_memory_ratio", reading.utilization * 0.35, 2, **labels)


def _reasons(page: Page, reading: Reading, labels: dict[str, str]) -> None:
    flags = {
        "gpu_idle": (0x1, reading.idle),
        "sw_power_cap": (0x4, reading.power_cap),
        "hw_slowdown": (0x8, reading.brake),
        "sw_thermal_slowdown": (0x20, reading.thermal),
        "hw_thermal_slowdown": (0x40, np.zeros_like(reading.idle)),
        "hw_power_brake_slowdown": (0x80, reading.brake),
    }
    mask = np.zeros(page.times.shape)
    for name, (bit, active) in flags.items():
        page.gauge(f"nvidia_smi_clocks_event_reasons_{name}", active.astype(np.float64), **labels)
        mask += bit * active
    page.gauge("nvidia_smi_clocks_event_reasons_active", mask, **labels)
    counters = {
        "sw_power_cap": reading.row("power_cap_seconds"),
        "sw_thermal_slowdown": reading.row("thermal_seconds"),
        "hw_thermal_slowdown": np.zeros(page.times.shape),
        "hw_power_brake_slowdown": reading.row("brake_seconds"),
        "sync_boost": np.zeros(page.times.shape),
    }
    for name, row in counters.items():
        page.counter(f"nvidia_smi_clocks_event_reasons_counters_{name}_seconds", row, 3, **labels)


def _processes(page: Page, reading: Reading, labels: dict[str, str]) -> None:
    foreign = reading.row("foreign_memory_bytes")
    alive = np.isfinite(reading.own_bytes).astype(np.float64) + (foreign > 0.0)
    page.gauge("nvidia_smi_compute_apps", alive, **labels)
    name = "nvidia_smi_compute_app_used_memory_bytes"
    for pid, process, row in (
        ("4242", _ENGINE, reading.own_bytes),
        ("9191", _TRAINER, np.where(foreign > 0.0, foreign, np.nan)),
    ):
        page.gauge(name, row, pid=pid, process_name=process, **labels)
