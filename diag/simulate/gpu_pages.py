"""Write a GPU's trace as two exporters would show it: DCGM exporter and nvidia_gpu_exporter.

Names, labels and units follow the recorded pages and the exporters' field lists; DCGM counts megahertz,
mebibytes, millijoules and nanoseconds, nvidia_gpu_exporter hertz, bytes and seconds, and their UUIDs
differ by the prefix ``GPU-``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diag.model import Floats
from diag.signals.frame import RawSeries
from diag.simulate.gpu import Card, Trace

__all__ = ["Process", "dcgm_pages", "nvidia_gpu_exporter_pages"]

_UUID = "51d1a7ed-0000-4000-8000-000000000000"
_PCI = "00000000:83:00.0"
_MEBIBYTE = 2.0**20
_REASON_BITS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}


@dataclass(frozen=True, slots=True, eq=False)
class Process:
    """A compute process on the card: its memory at each sample, NaN while it does not exist."""

    pid: int
    name: str
    memory_bytes: Floats


def dcgm_pages(card: Card, trace: Trace, processes: tuple[Process, ...], node: str) -> list[RawSeries]:
    """What dcgm-exporter shows, with the clock-event and violation fields an operator has to add."""
    labels = {
        "gpu": "0",
        "UUID": f"GPU-{_UUID}",
        "pci_bus_id": _PCI,
        "device": "nvidia0",
        "modelName": f"{card.model} (simulated)",
        "Hostname": node,
        "instance": f"{node}:9400",
        "job": "dcgm",
    }
    used = _used(trace, processes)
    values: dict[str, Floats] = {
        "GPU_UTIL": np.rint(trace.utilization * 100.0),
        "MEM_COPY_UTIL": np.rint(trace.utilization * 35.0),
        "SM_CLOCK": trace.clock_mhz,
        "MAX_SM_CLOCK": np.full_like(trace.times, card.max_clock_mhz),
        "MEM_CLOCK": np.full_like(trace.times, card.memory_clock_mhz),
        "GPU_TEMP": trace.celsius,
        "MEMORY_TEMP": trace.memory_celsius,
        "POWER_USAGE": trace.power_watts,
        "POWER_MGMT_LIMIT": np.full_like(trace.times, card.limit_watts),
        "TOTAL_ENERGY_CONSUMPTION": np.rint(5e9 + trace.energy_joules * 1e3),
        "CLOCKS_EVENT_REASONS": trace.reasons,
        "POWER_VIOLATION": np.rint(trace.power_cap_seconds * 1e9),
        "THERMAL_VIOLATION": np.rint(trace.thermal_seconds * 1e9),
        "FB_USED": np.rint(used / _MEBIBYTE),
        "FB_FREE": np.rint((card.memory_bytes - used) / _MEBIBYTE),
        "PCIE_REPLAY_COUNTER": np.zeros_like(trace.times),
        "ECC_DBE_VOL_TOTAL": np.zeros_like(trace.times),
        "UNCORRECTABLE_REMAPPED_ROWS": np.zeros_like(trace.times),
        "ROW_REMAP_FAILURE": np.zeros_like(trace.times),
    }
    pages = [_one(f"DCGM_FI_DEV_{name}", labels, trace.times, row) for name, row in values.items()]
    no_error = {**labels, "err_code": "0", "err_msg": "No Error"}
    pages.append(_one("DCGM_FI_DEV_XID_ERRORS", no_error, trace.times, np.zeros_like(trace.times)))
    return pages + _target(labels, trace.times)


def nvidia_gpu_exporter_pages(
    card: Card, trace: Trace, processes: tuple[Process, ...], node: str
) -> list[RawSeries]:
    """What nvidia_gpu_exporter shows with ``--query-compute-apps``."""
    target = {"instance": f"{node}:9835", "job": "nvidia_gpu_exporter"}
    labels = {"uuid": _UUID, **target}
    used = _used(trace, processes)
    alive: Floats = np.sum([np.isfinite(p.memory_bytes) for p in processes], axis=0, dtype=np.float64)
    values: dict[str, Floats] = {
        "utilization_gpu_ratio": trace.utilization,
        "utilization_memory_ratio": np.round(trace.utilization * 0.35, 2),
        "clocks_current_sm_clock_hz": trace.clock_mhz * 1e6,
        "clocks_max_sm_clock_hz": np.full_like(trace.times, card.max_clock_mhz * 1e6),
        "clocks_current_memory_clock_hz": np.full_like(trace.times, card.memory_clock_mhz * 1e6),
        "temperature_gpu": trace.celsius,
        "temperature_memory": trace.memory_celsius,
        "temperature_gpu_tlimit": np.maximum(card.slowdown_celsius - trace.celsius, 0.0),
        "power_draw_watts": trace.power_watts,
        "power_draw_instant_watts": trace.power_watts,
        "enforced_power_limit_watts": np.full_like(trace.times, card.limit_watts),
        "memory_used_bytes": used,
        "memory_free_bytes": card.memory_bytes - used,
        "memory_total_bytes": np.full_like(trace.times, card.memory_bytes),
        "compute_apps": alive,
        "ecc_errors_uncorrected_volatile_total": np.zeros_like(trace.times),
        "remapped_rows_uncorrectable": np.zeros_like(trace.times),
        "pcie_link_gen_current": np.full_like(trace.times, 5.0),
        "pcie_link_gen_max": np.full_like(trace.times, 5.0),
        "pcie_link_width_current": np.full_like(trace.times, 16.0),
        "pcie_link_width_max": np.full_like(trace.times, 16.0),
        **_reasons(trace),
    }
    pages = [_one(f"nvidia_smi_{name}", labels, trace.times, row) for name, row in values.items()]
    identity = {**labels, "index": "0", "name": f"{card.model} (simulated)", "pci_bus_id": _PCI}
    pages.append(_one("nvidia_smi_gpu_info", identity, trace.times, np.ones_like(trace.times)))
    for process in processes:
        pages.append(_app(process, labels, trace.times))
    return pages + _target(target, trace.times)


def _reasons(trace: Trace) -> dict[str, Floats]:
    mask = trace.reasons.astype(np.int64)
    flags = {
        f"clocks_event_reasons_{name}": ((mask & bit) > 0).astype(np.float64)
        for name, bit in _REASON_BITS.items()
    }
    totals = {
        "sw_power_cap": trace.power_cap_seconds,
        "sw_thermal_slowdown": trace.thermal_seconds,
        "hw_thermal_slowdown": trace.hardware_thermal_seconds,
        "hw_power_brake_slowdown": trace.power_brake_seconds,
        "sync_boost": np.zeros_like(trace.times),
    }
    counters = {f"clocks_event_reasons_counters_{name}_seconds": row for name, row in totals.items()}
    return {"clocks_event_reasons_active": trace.reasons, **flags, **counters}


def _used(trace: Trace, processes: tuple[Process, ...]) -> Floats:
    used: Floats = np.full_like(trace.times, 640.0 * _MEBIBYTE)  # the driver's own share
    for process in processes:
        used = used + np.nan_to_num(process.memory_bytes)
    return used


def _app(process: Process, labels: Mapping[str, str], times: Floats) -> RawSeries:
    there = np.isfinite(process.memory_bytes)
    names = {**labels, "pid": str(process.pid), "process_name": process.name}
    metric = "nvidia_smi_compute_app_used_memory_bytes"
    return _one(metric, names, times[there], process.memory_bytes[there])


def _target(labels: Mapping[str, str], times: Floats) -> list[RawSeries]:
    target = {"instance": labels["instance"], "job": labels["job"]}
    return [
        _one("up", target, times, np.ones_like(times)),
        _one("scrape_duration_seconds", target, times, np.full_like(times, 0.02)),
    ]


def _one(name: str, labels: Mapping[str, str], times: Floats, values: Floats) -> RawSeries:
    return RawSeries({"__name__": name, **labels}, times, values)
