"""dcgm-exporter: GPUs as NVIDIA's DCGM sees them.

The default counters file has no throttle reason, no ECC, no maximum clock and no power limit: where
they are missing that is "not observable", never "healthy". A field that a card doesn't support can
surface as a huge sentinel (9.2e18, 1.4e14 or 2147483632): every value is held to a sane range and
dropped outside it. Under MIG, fields of the whole device are repeated per instance, so nothing is summed.
"""

from __future__ import annotations

from diag.engines.combine import GPU_BY, GPU_LABELS, added, at, share, valid_rate
from diag.engines.registry import Absent, Definition, Engine
from diag.signals.algebra import Binary, Bit, Expr, FirstOf, Gauge, Keep, Scale, Select, ratio, select, total

__all__ = ["DCGM"]

_REASONS = select("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
_NANOSECONDS_LIMIT = 1e18  # 31 years of violation time; the sentinel is 9.2e18


def _gauge(field: str, limit: float, factor: float = 1.0, over: str = "avg") -> Expr:
    inside = Keep(Gauge(select(field), "last" if over == "last" else "avg"), 0.0, limit)
    return at(inside if factor == 1.0 else Scale(inside, factor), GPU_BY)


def _part(current: str, most: str) -> Expr:
    return share(ratio(_gauge(current, 64.0), _gauge(most, 64.0)))


def _reason(*bits: int) -> Expr:
    mask = at(Keep(Gauge(_REASONS), 0.0, 65535.0), GPU_BY)
    result: Expr = Bit(mask, bits[0])
    for bit in bits[1:]:
        result = Binary("+", result, Bit(mask, bit))
    return share(result)


def _violation(field: Select) -> Expr:
    return share(Scale(at(valid_rate(field, _NANOSECONDS_LIMIT), GPU_BY), 1e-9))


_THERMAL = FirstOf((_reason(5, 6), _violation(select("DCGM_FI_DEV_THERMAL_VIOLATION"))))
_POWER = FirstOf((_reason(2), _violation(select("DCGM_FI_DEV_POWER_VIOLATION"))))
_LINK_ERRORS = (
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
)
_MASK_NOTE = "0 or 1 as sampled; not in the default counters file"


def _named(expr: Expr, note: str = "") -> Definition:
    """Named in the exporter's sources and counters file, in no recorded page."""
    return Definition(expr, verified=False, note=note)


_SIGNALS: dict[str, Definition | Absent] = {
    "gpu_utilization_ratio": Definition(_gauge("DCGM_FI_DEV_GPU_UTIL", 100.0, 0.01)),
    "gpu_sm_clock_hertz": _named(_gauge("DCGM_FI_DEV_SM_CLOCK", 1e5, 1e6)),
    "gpu_sm_clock_max_hertz": _named(
        _gauge("DCGM_FI_DEV_MAX_SM_CLOCK", 1e5, 1e6), "not in the default counters file"
    ),
    "gpu_temperature_celsius": _named(_gauge("DCGM_FI_DEV_GPU_TEMP", 1000.0)),
    "gpu_memory_temperature_celsius": Definition(_gauge("DCGM_FI_DEV_MEMORY_TEMP", 1000.0)),
    "gpu_power_watts": _named(_gauge("DCGM_FI_DEV_POWER_USAGE", 1e5)),
    "gpu_power_limit_watts": _named(
        _gauge("DCGM_FI_DEV_POWER_MGMT_LIMIT", 1e5), "not in the default counters file"
    ),
    "gpu_thermal_throttle_ratio": _named(_THERMAL, f"{_MASK_NOTE}; the violation counter gives shares"),
    "gpu_power_throttle_ratio": _named(
        _POWER, f"{_MASK_NOTE}; a card at full load shows it in good health: judge by the clock"
    ),
    "gpu_power_brake_ratio": _named(_reason(7, 3), f"{_MASK_NOTE}; hardware slowdown and power brake"),
    "gpu_memory_used_bytes": _named(_gauge("DCGM_FI_DEV_FB_USED", 1e8, 2.0**20)),
    "gpu_xid_code": _named(
        _gauge("DCGM_FI_DEV_XID_ERRORS", 1e6, over="last"), "the last code; stays until the exporter restarts"
    ),
    "gpu_uncorrectable_ecc_errors": _named(
        _gauge("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1e9, over="last"), "not in the default counters file"
    ),
    "gpu_xid_events": Definition(
        total(Keep(Gauge(select("DCGM_EXP_XID_ERRORS_COUNT"), "max"), 0.0, 1e9), GPU_BY),
        note="over the exporter's own window of minutes; not in the default counters file",
    ),
    "gpu_remapped_rows": _named(_gauge("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 1e6, over="last")),
    "gpu_link_width_ratio": _named(
        _part("DCGM_FI_DEV_PCIE_LINK_WIDTH", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"),
        "not in the default counters file",
    ),
    "gpu_link_generation_ratio": _named(
        _part("DCGM_FI_DEV_PCIE_LINK_GEN", "DCGM_FI_DEV_PCIE_MAX_LINK_GEN"),
        "not in the default counters file",
    ),
    "gpu_link_errors_per_second": _named(
        added(*(at(valid_rate(select(name), 1e12), GPU_BY) for name in _LINK_ERRORS)),
        "NVLink errors are not in the default counters file",
    ),
    "gpu_nvlink_active_ratio": Absent("dcgm-exporter shows the state of no single link"),
    "gpu_numa_match_ratio": Absent("dcgm-exporter shows no processes"),
    "gpu_foreign_memory_bytes": Absent("dcgm-exporter shows no processes: run nvidia_gpu_exporter beside it"),
    "gpu_foreign_sm_ratio": Absent("dcgm-exporter shows no processes"),
}

DCGM = Engine(
    name="dcgm",
    title="dcgm-exporter",
    probe=select("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_SM_CLOCK"),
    signals=_SIGNALS,
    labels=GPU_LABELS,
)
