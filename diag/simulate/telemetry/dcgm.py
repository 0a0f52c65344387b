"""dcgm-exporter's page of a host, with the fields that ``deploy/dcgm/counters.csv`` adds to its default."""

from __future__ import annotations

import numpy as np

from diag.model import Floats
from diag.simulate.gpu import H200
from diag.simulate.observed import Run
from diag.simulate.telemetry.cards import NVLINKS, Reading, pci_of
from diag.simulate.telemetry.engines import NAMESPACE, pod_of
from diag.simulate.telemetry.page import Page, forever

__all__ = ["dcgm_page"]

_MEBIBYTE = 2.0**20
_NVLINK_ERRORS = ("CRC_FLIT", "CRC_DATA", "RECOVERY")


def dcgm_page(run: Run, host: str, readings: list[Reading]) -> Page:
    """``job="dcgm"``; megahertz, mebibytes, millijoules and nanoseconds, as DCGM counts."""
    seconds = np.full(run.times.shape, 0.02)
    page = Page("dcgm", f"{host}:9400", {"Hostname": host, "node": host}, run.times, forever(21.0), seconds)
    for reading in readings:
        index = str(reading.card.index)
        labels = {
            "gpu": index,
            "UUID": f"GPU-{reading.uuid}",
            "pci_bus_id": pci_of(reading.card.index),
            "device": f"nvidia{index}",
            "modelName": f"{H200.model} (simulated)",
            **_pod(run, reading.card.engine),
        }
        _sensors(page, reading, labels)
        _troubles(page, reading, labels)
    return page


def _pod(run: Run, engine: str) -> dict[str, str]:
    """Kubernetes tells dcgm-exporter which pod has the card."""
    for replica in run.plan.replicas:
        if replica.name == engine:
            return {"container": "engine", "namespace": NAMESPACE, "pod": pod_of(replica)}
    return {}


def _sensors(page: Page, reading: Reading, labels: dict[str, str]) -> None:
    measured: dict[str, tuple[Floats, int]] = {
        "GPU_UTIL": (reading.utilization * 100.0, 0),
        "MEM_COPY_UTIL": (reading.utilization * 35.0, 0),
        "GPU_TEMP": (reading.celsius, 0),
        "MEMORY_TEMP": (reading.memory_celsius, 0),
        "POWER_USAGE": (reading.row("power_watts"), 3),
    }
    for name, (row, digits) in measured.items():
        page.measured(f"DCGM_FI_DEV_{name}", row, digits, **labels)
    exact: dict[str, Floats | float] = {
        "SM_CLOCK": reading.clock_mhz,
        "MAX_SM_CLOCK": H200.max_clock_mhz,
        "MEM_CLOCK": H200.memory_clock_mhz,
        "POWER_MGMT_LIMIT": reading.row("power_limit_watts"),
        "CLOCKS_EVENT_REASONS": _mask(reading),
        "FB_USED": reading.used_bytes / _MEBIBYTE,
        "FB_FREE": (H200.memory_bytes - reading.used_bytes) / _MEBIBYTE,
        "PCIE_LINK_WIDTH": reading.lanes,
        "PCIE_MAX_LINK_WIDTH": 16.0,
        "PCIE_LINK_GEN": reading.generation,
        "PCIE_MAX_LINK_GEN": 5.0,
    }
    for name, value in exact.items():
        page.gauge(f"DCGM_FI_DEV_{name}", value, **labels)
    counters = {
        "TOTAL_ENERGY_CONSUMPTION": reading.row("energy_joules") * 1e3,
        "POWER_VIOLATION": reading.row("power_cap_seconds") * 1e9,
        "THERMAL_VIOLATION": reading.row("thermal_seconds") * 1e9,
    }
    for name, row in counters.items():
        page.counter(f"DCGM_FI_DEV_{name}", row, **labels)


def _mask(reading: Reading) -> Floats:
    mask = reading.idle * 0x1 + reading.power_cap * 0x4 + reading.thermal * 0x20 + reading.brake * 0x88
    row: Floats = mask.astype(np.float64)
    return row


def _troubles(page: Page, reading: Reading, labels: dict[str, str]) -> None:
    """Counts since boot are gauges here: the window's first sample has them all, and none was before."""
    nothing = np.zeros(page.times.shape)
    for code in (0, *(code for code, _ in reading.xids)):
        seen = np.where(reading.xid == code, reading.xid, np.nan)
        about = {"err_code": str(code), "err_msg": "No Error" if code == 0 else f"Xid {code}"}
        page.gauge("DCGM_FI_DEV_XID_ERRORS", seen, **about, **labels)
    page.gauge("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", nothing, **labels)
    page.gauge("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", reading.ecc_errors, **labels)
    page.gauge("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", np.floor(reading.ecc_errors / 2.0), **labels)
    page.gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", nothing, **labels)
    errors = reading.row("link_errors")
    page.counter(
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", nothing if reading.nvlinks is not None else errors, **labels
    )
    if reading.nvlinks is not None:
        page.counter("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", errors, **labels)
        for name in _NVLINK_ERRORS:
            page.counter(f"DCGM_FI_DEV_NVLINK_{name}_ERROR_COUNT_TOTAL", nothing, **labels)
        page.counter("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", reading.own_sm.cumsum() * NVLINKS * 1e3, **labels)
