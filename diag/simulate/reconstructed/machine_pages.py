"""GPUs and hosts around a reconstructed engine, as the exporters that people had show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from diag.model import Floats
from diag.simulate.profiles import Profile, constant
from diag.simulate.reconstructed.stage import Stage

__all__ = ["Board", "Host", "dcgm", "host", "smi"]

_THERMAL_BIT = 0x20
_POWER_BIT = 0x4
_BRAKE_BIT = 0x80
_MEBIBYTE = 2.0**20


@dataclass(frozen=True, slots=True)
class Board:
    """One GPU. Ratios are shares of time; ``xid``/``uncorrectable``: last code and count so far. ``more``: further
    series of its exporter, name → course."""

    node: str = "gpu-0"
    index: int = 0
    model: str = "NVIDIA H100 80GB HBM3"
    utilization: Profile = constant(0.82)
    clock_mhz: Profile = constant(1755.0)
    max_clock_mhz: float = 1980.0
    power_watts: Profile = constant(480.0)
    limit_watts: Profile = constant(700.0)
    celsius: Profile = constant(58.0)
    thermal_ratio: Profile = constant(0.0)
    power_ratio: Profile = constant(0.0)
    xid: Profile = constant(0.0)
    uncorrectable: Profile = constant(0.0)
    used_bytes: Profile = constant(74.0e9)
    reasons: bool = True
    address: str = ""
    silent: tuple[tuple[float, float], ...] = ()
    scrape_seconds: Profile = constant(0.03)
    more: Mapping[str, Profile] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        """Made up, stable for a node and an index."""
        number = sum(ord(letter) for letter in self.node)
        return f"{number:08x}-0000-4000-8000-{self.index:012x}"

    @property
    def pci(self) -> str:
        """As given, else made up in the same way."""
        return self.address or f"00000000:{0x1A + 0x10 * self.index:02X}:00.0"


def dcgm(stage: Stage, board: Board) -> None:
    """dcgm-exporter's page of one GPU; with the clock-event fields if ``reasons``."""
    labels = {
        "gpu": str(board.index),
        "UUID": f"GPU-{board.uuid}",
        "pci_bus_id": board.pci,
        "device": f"nvidia{board.index}",
        "modelName": board.model,
        "Hostname": board.node,
        "instance": f"{board.node}:9400",
        "job": "dcgm",
    }
    utilization = np.clip(stage.noisy(board.utilization), 0.0, 1.0)
    values: dict[str, Floats] = {
        "GPU_UTIL": np.rint(utilization * 100.0),
        "SM_CLOCK": np.rint(stage.noisy(board.clock_mhz, 0.004) / 15.0) * 15.0,
        "MAX_SM_CLOCK": np.full(len(stage.times), board.max_clock_mhz),
        "GPU_TEMP": np.rint(stage.noisy(board.celsius, 0.01)),
        "POWER_USAGE": np.round(stage.noisy(board.power_watts), 1),
        "POWER_MGMT_LIMIT": board.limit_watts.over(stage.times),
        "FB_USED": np.rint(board.used_bytes.over(stage.times) / _MEBIBYTE),
        "XID_ERRORS": board.xid.over(stage.times),
        "ECC_DBE_VOL_TOTAL": np.floor(board.uncorrectable.over(stage.times)),
    }
    if board.reasons:
        values |= {
            "CLOCKS_EVENT_REASONS": _mask(stage, board),
            "THERMAL_VIOLATION": np.rint(stage.integral(board.thermal_ratio) * 1e9),
            "POWER_VIOLATION": np.rint(stage.integral(board.power_ratio) * 1e9),
        }
    values |= {name: course.over(stage.times) for name, course in board.more.items()}
    alive = stage.alive(board.silent)
    for name, row in values.items():
        full = name if name.startswith("DCGM_") else f"DCGM_FI_DEV_{name}"
        stage.put("gpu", full, labels, row, alive & np.isfinite(row))
    if board.index == 0:
        stage.target("gpu", labels, board.silent, board.scrape_seconds)


def _mask(stage: Stage, board: Board) -> Floats:
    """The reasons as sampled: each is there in its share of the samples."""
    turn = (np.arange(len(stage.times)) * 0.6180339887) % 1.0
    thermal = turn < board.thermal_ratio.over(stage.times)
    power = turn < board.power_ratio.over(stage.times)
    mask: Floats = thermal * float(_THERMAL_BIT) + power * float(_POWER_BIT)
    return mask


def smi(stage: Stage, board: Board) -> None:
    """nvidia_gpu_exporter's page of one GPU, reason counters included."""
    labels = {"uuid": board.uuid, "instance": f"{board.node}:9835", "job": "nvidia_gpu_exporter"}
    times = stage.times
    utilization: Floats = np.clip(stage.noisy(board.utilization), 0.0, 1.0)
    values: dict[str, Floats] = {
        "utilization_gpu_ratio": utilization,
        "clocks_current_sm_clock_hz": np.rint(stage.noisy(board.clock_mhz, 0.004)) * 1e6,
        "clocks_max_sm_clock_hz": np.full(len(times), board.max_clock_mhz * 1e6),
        "temperature_gpu": np.rint(stage.noisy(board.celsius, 0.005)),
        "power_draw_watts": np.round(stage.noisy(board.power_watts, 0.01), 2),
        "enforced_power_limit_watts": board.limit_watts.over(times),
        "memory_used_bytes": board.used_bytes.over(times),
        "ecc_errors_uncorrected_volatile_total": np.floor(board.uncorrectable.over(times)),
        **{name: course.over(times) for name, course in board.more.items()},
    }
    if board.reasons:
        for reason, share in (
            ("sw_thermal_slowdown", board.thermal_ratio),
            ("sw_power_cap", board.power_ratio),
        ):
            grown = np.round(stage.integral(share, sigma=0.01), 6)
            values[f"clocks_event_reasons_counters_{reason}_seconds"] = grown
        values["clocks_event_reasons_active"] = _mask(stage, board)
    for name, row in values.items():
        stage.put("gpu", f"nvidia_smi_{name}", labels, row)
    identity = {**labels, "index": str(board.index), "name": board.model, "pci_bus_id": board.pci}
    stage.put("gpu", "nvidia_smi_gpu_info", identity, np.ones(len(times)))
    if board.index == 0:
        stage.target("gpu", labels)


@dataclass(frozen=True, slots=True)
class Host:
    """One host: CPUs and how busy, memory, and what its network and fabric lose (per second)."""

    node: str = "gpu-0"
    cpus: int = 4
    user_ratio: Profile = constant(0.18)
    cpu_pressure: Profile = constant(0.01)
    memory_bytes: float = 512.0e9
    available_bytes: Profile = constant(380.0e9)
    major_faults: Profile = constant(0.05)
    oom_kills: Profile = constant(0.0)
    segments: Profile = constant(900.0)
    retransmits: Profile = constant(0.1)
    drops: Profile = constant(0.0)
    counters: Mapping[str, tuple[Mapping[str, str], Profile]] = field(default_factory=dict)


def host(stage: Stage, one: Host) -> None:
    """node_exporter's page; a host of few CPUs in the bundle stands for one of many, its ratios are the same."""
    labels = {"instance": f"{one.node}:9100", "job": "node"}
    user = np.clip(stage.noisy(one.user_ratio, 0.05), 0.0, 0.99)
    for cpu in range(one.cpus):
        for mode, share in (("user", user), ("system", np.full_like(user, 0.01)), ("idle", 0.99 - user)):
            grown = 5e4 + np.concatenate([[0.0], np.cumsum(share[:-1])]) * stage.step_seconds
            stage.put(
                "node",
                "node_cpu_seconds_total",
                {**labels, "cpu": str(cpu), "mode": mode},
                np.round(grown, 2),
            )
    flat = np.ones(len(stage.times))
    rows = {
        "node_load1": np.round(user * one.cpus, 2),
        "node_memory_MemTotal_bytes": flat * one.memory_bytes,
        "node_memory_MemAvailable_bytes": np.rint(stage.noisy(one.available_bytes, 0.001)),
        "node_pressure_cpu_waiting_seconds_total": np.round(stage.integral(one.cpu_pressure, 900.0), 3),
        "node_vmstat_pgmajfault": np.rint(stage.integral(one.major_faults, 4000.0)),
        "node_vmstat_oom_kill": np.rint(stage.integral(one.oom_kills, 0.0, 0.0)),
        "node_netstat_Tcp_OutSegs": np.rint(stage.integral(one.segments, 1e6)),
        "node_netstat_Tcp_RetransSegs": np.rint(stage.integral(one.retransmits, 500.0)),
    }
    for name, row in rows.items():
        stage.put("node", name, labels, row)
    for name, (more, rate) in one.counters.items():
        grown = np.rint(stage.integral(rate, sigma=0.0))
        stage.put("node", name.partition("#")[0], {**labels, **more}, grown)
    stage.target("node", labels)
