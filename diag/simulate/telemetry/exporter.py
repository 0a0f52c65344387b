"""diag-exporter's page of a host: GPUs with throttle time and processes, and the facts of engines."""

from __future__ import annotations

import numpy as np

from diag.model import Floats
from diag.simulate.gpu import H200
from diag.simulate.observed import Run
from diag.simulate.telemetry.cards import NVLINKS, Reading, pci_of
from diag.simulate.telemetry.engines import setting
from diag.simulate.telemetry.lives import lives_of, living
from diag.simulate.telemetry.page import Page, forever

__all__ = ["exporter_page"]

_REASONS = ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake", "sync_boost")
_FATAL = frozenset({48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143, 154})
_ON_PAGE_CODES = (31, 48, 63, 74, 79, 94, 95)
_NEAR, _FAR = 0.15, 0.6  # share of far memory below and above which all allowed CPUs are on one side


def exporter_page(run: Run, host: str, readings: list[Reading]) -> Page:
    """``job="llmdiag"``, as ``diag-exporter all`` shows it."""
    seconds = np.full(run.times.shape, 0.006)
    page = Page("llmdiag", f"{host}:9877", {"node": host}, run.times, forever(21.0), seconds)
    page.gauge("llmdiag_exporter_build_info", 1.0, version="0.1.0", python_version="3.11.7")
    page.gauge("llmdiag_up", 1.0)
    page.gauge("llmdiag_gpu_pid_namespace_mismatch", 0.0)
    for reading in readings:
        labels = {"uuid": f"GPU-{reading.uuid}", "gpu": str(reading.card.index)}
        _sensors(page, reading, labels)
        _reasons(page, reading, labels)
        _links(page, reading, labels)
        _faults(page, reading, labels)
        _processes(page, reading, labels)
    _engines(page, run, host)
    return page


def _sensors(page: Page, reading: Reading, labels: dict[str, str]) -> None:
    measured: dict[str, tuple[Floats, int]] = {
        "temperature_celsius": (reading.celsius, 0),
        "memory_temperature_celsius": (reading.memory_celsius, 0),
        "power_watts": (reading.row("power_watts"), 3),
    }
    for name, (row, digits) in measured.items():
        page.measured(f"llmdiag_gpu_{name}", row, digits, **labels)
    exact: dict[str, Floats | float] = {
        "sm_clock_hertz": reading.clock_mhz * 1e6,
        "up": 1.0,
        "sm_clock_max_hertz": H200.max_clock_mhz * 1e6,
        "memory_clock_hertz": H200.memory_clock_mhz * 1e6,
        "memory_clock_max_hertz": H200.memory_clock_mhz * 1e6,
        "power_limit_watts": reading.row("power_limit_watts"),
        "power_default_limit_watts": reading.default_limit_watts,
        "memory_total_bytes": H200.memory_bytes,
        "memory_used_bytes": reading.used_bytes,
    }
    for name, value in exact.items():
        page.gauge(f"llmdiag_gpu_{name}", value, **labels)
    page.gauge("llmdiag_gpu_utilization_ratio", reading.utilization, 2, **labels)
    page.gauge("llmdiag_gpu_memory_utilization_ratio", reading.utilization * 0.35, 2, **labels)
    page.counter("llmdiag_gpu_energy_joules_total", reading.row("energy_joules"), 3, **labels)
    identity = {"name": f"{H200.model} (simulated)", "driver_version": "580.95.05"}
    page.gauge("llmdiag_gpu_info", 1.0, pci_bus_id=pci_of(reading.card.index), **identity, **labels)


def _reasons(page: Page, reading: Reading, labels: dict[str, str]) -> None:
    active = {
        "idle": reading.idle,
        "sw_power_cap": reading.power_cap,
        "hw_slowdown": reading.brake,
        "sw_thermal": reading.thermal,
        "hw_thermal": np.zeros_like(reading.idle),
        "hw_power_brake": reading.brake,
    }
    for reason, row in active.items():
        page.gauge("llmdiag_gpu_clock_event_active", row.astype(np.float64), reason=reason, **labels)
    held = {
        "sw_power_cap": "power_cap_seconds",
        "sw_thermal": "thermal_seconds",
        "hw_power_brake": "brake_seconds",
    }
    for reason in _REASONS:
        seconds = reading.row(held[reason]) if reason in held else np.zeros(page.times.shape)
        page.counter("llmdiag_gpu_clock_event_seconds_total", seconds, 3, reason=reason, **labels)


def _links(page: Page, reading: Reading, labels: dict[str, str]) -> None:
    page.gauge("llmdiag_gpu_pcie_link_width", reading.lanes, **labels)
    page.gauge("llmdiag_gpu_pcie_link_width_max", 16.0, **labels)
    page.gauge("llmdiag_gpu_pcie_link_generation", reading.generation, **labels)
    page.gauge("llmdiag_gpu_pcie_link_generation_max", 5.0, **labels)
    errors, nothing = reading.row("link_errors"), np.zeros(page.times.shape)
    page.counter("llmdiag_gpu_pcie_replays_total", errors if reading.nvlinks is None else nothing, **labels)
    if reading.nvlinks is not None:
        page.gauge("llmdiag_gpu_nvlink_links", float(NVLINKS), **labels)
        page.gauge("llmdiag_gpu_nvlink_links_active", reading.nvlinks, **labels)
        for kind in ("crc_flit", "crc_data", "replay", "recovery"):
            row = errors if kind == "replay" else nothing
            page.counter("llmdiag_gpu_nvlink_errors_total", row, kind=kind, **labels)


def _faults(page: Page, reading: Reading, labels: dict[str, str]) -> None:
    """Counts since the exporter's start; nothing had happened before the window."""
    nothing = np.zeros(page.times.shape)
    page.gauge("llmdiag_gpu_xid_last_code", reading.xid, **labels)
    counted = dict(reading.xids)
    for code in sorted({*_ON_PAGE_CODES, *counted}):
        about = {"class": "fatal" if code in _FATAL else "app", "xid": str(code)}
        page.gauge("llmdiag_gpu_xid_total", counted.get(code, nothing), **about, **labels)
    for kind, row in (("corrected", nothing), ("uncorrected", reading.ecc_errors)):
        for lifetime in ("volatile", "aggregate"):
            page.gauge("llmdiag_gpu_ecc_errors_total", row, kind=kind, lifetime=lifetime, **labels)
    rows = np.floor(reading.ecc_errors / 2.0)
    page.gauge("llmdiag_gpu_remapped_rows_total", rows, cause="uncorrectable", **labels)
    page.gauge("llmdiag_gpu_row_remap_failure", 0.0, **labels)


def _processes(page: Page, reading: Reading, labels: dict[str, str]) -> None:
    foreign, alive = reading.row("foreign_memory_bytes"), np.isfinite(reading.own_bytes)
    there = (foreign > 0.0) | (reading.row("foreign_sm_ratio") > 0.0)
    page.gauge("llmdiag_gpu_foreign_memory_bytes", foreign, **labels)
    page.measured("llmdiag_gpu_foreign_sm_ratio", reading.row("foreign_sm_ratio"), 2, **labels)
    page.gauge("llmdiag_gpu_processes", alive.astype(np.float64), owner="own", **labels)
    page.gauge("llmdiag_gpu_processes", there.astype(np.float64), owner="foreign", **labels)
    uuid = labels["uuid"]
    for process, owner, memory, sm in (
        ("VLLM::EngineCore", "own", reading.own_bytes, np.where(alive, reading.own_sm, np.nan)),
        (
            "trainer",
            "foreign",
            np.where(there, foreign, np.nan),
            np.where(there, reading.row("foreign_sm_ratio"), np.nan),
        ),
    ):
        who = {"uuid": uuid, "process": process, "owner": owner}
        page.gauge("llmdiag_gpu_process_memory_bytes", memory, **who)
        page.gauge("llmdiag_gpu_process_sm_ratio", sm, 2, **who)
    page.gauge("llmdiag_gpu_numa_node", float(reading.card.index // 4), **labels)
    far = reading.far_ratio
    page.gauge("llmdiag_engine_cpus_local_ratio", np.where(alive, 1.0 - far, np.nan), 2, **labels)
    sides = np.where(far <= _NEAR, 1.0, np.where(far >= _FAR, 0.0, np.nan))
    page.gauge("llmdiag_engine_numa_match", np.where(alive, sides, np.nan), **labels)


def _engines(page: Page, run: Run, host: str) -> None:
    """What the engine's own page leaves out, asked of the engine; gone while it does not answer."""
    for replica in run.plan.replicas:
        if replica.host != host:
            continue
        asked = Page("", "", {}, run.times, lives_of(run, replica), run.times)
        who = {"engine": replica.name}
        alive = living(asked.lives, run.times)
        page.gauge("llmdiag_engine_up", alive.astype(np.float64), **who)
        model = {"model": replica.machine.name, **who}
        length = setting(asked, lambda one: float(one.max_model_len_tokens))
        page.gauge("llmdiag_model_max_len_tokens", length, **model)
        capacity = setting(asked, lambda one: float(one.kv_blocks * one.block_size_tokens))
        page.gauge("llmdiag_engine_kv_capacity_tokens", capacity, **who)
        page.gauge("llmdiag_engine_max_num_seqs", setting(asked, lambda one: float(one.max_num_seqs)), **who)
        budget = setting(asked, lambda one: float(one.max_num_batched_tokens))
        page.gauge("llmdiag_engine_max_num_batched_tokens", budget, **who)
        caching = setting(asked, lambda one: float(one.prefix_caching))
        page.gauge("llmdiag_engine_prefix_caching_enabled", caching, **who)
