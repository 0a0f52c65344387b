"""nvidia_gpu_exporter (``nvidia_smi_*``): GPUs as nvidia-smi prints them.

It labels cards by a UUID without the ``GPU-`` that DCGM writes (see ``registry.canonical``) and
carries no host name: the target's ``instance`` is the host.
"""

from __future__ import annotations

from diag.engines.combine import GPU_BY, GPU_LABELS, at, share
from diag.engines.registry import Absent, Definition, Engine
from diag.signals.algebra import Binary, Expr, FirstOf, Gauge, Rate, Scale, ratio, select, total

__all__ = ["NVIDIA_GPU_EXPORTER"]

# Python could be an engine or anything else, and "[Not Found]" is nobody we could name.
_OURS = r"(?i).*(vllm|sglang|enginecore|trtllm|tritonserver|triton|text-generation|dynamo|python).*|\[.*"
_APPS = "nvidia_smi_compute_app_used_memory_bytes"


def _smi(name: str, over: str = "avg") -> Expr:
    return at(Gauge(select(f"nvidia_smi_{name}"), "last" if over == "last" else "avg"), GPU_BY)


def _flag(reason: str) -> Expr:
    names = (f"nvidia_smi_clocks_event_reasons_{reason}", f"nvidia_smi_clocks_throttle_reasons_{reason}")
    return at(Gauge(select(*names), "avg"), GPU_BY)


def _counted(*reasons: str) -> Expr:
    """Share of time by the driver's own counters: nothing between two scrapes is missed."""
    rates = [
        at(Rate(select(f"nvidia_smi_clocks_event_reasons_counters_{reason}_seconds")), GPU_BY)
        for reason in reasons
    ]
    return _together(rates)


def _together(parts: list[Expr]) -> Expr:
    result = parts[0]
    for part in parts[1:]:
        result = Binary("+", result, part)
    return share(result)


_THERMAL = FirstOf(
    (
        _counted("sw_thermal_slowdown", "hw_thermal_slowdown"),
        _together([_flag("sw_thermal_slowdown"), _flag("hw_thermal_slowdown")]),
    )
)
_POWER = FirstOf((_counted("sw_power_cap"), share(_flag("sw_power_cap"))))
_BRAKE = _together([_flag("hw_slowdown"), _flag("hw_power_brake_slowdown")])

# A card with processes of ours alone has 0 foreign bytes, and so has one whose process list is
# collected and empty. Without --query-compute-apps all three are absent: unknown.
_FOREIGN = FirstOf(
    (
        total(Gauge(select(_APPS, process_name=f"!~{_OURS}")), GPU_BY),
        Scale(total(Gauge(select(_APPS)), GPU_BY), 0.0),
        Scale(at(Gauge(select("nvidia_smi_compute_apps")), GPU_BY), 0.0),
    )
)

_SIGNALS: dict[str, Definition | Absent] = {
    "gpu_utilization_ratio": Definition(_smi("utilization_gpu_ratio")),
    "gpu_sm_clock_hertz": Definition(_smi("clocks_current_sm_clock_hz")),
    "gpu_sm_clock_max_hertz": Definition(_smi("clocks_max_sm_clock_hz")),
    "gpu_temperature_celsius": Definition(_smi("temperature_gpu")),
    "gpu_memory_temperature_celsius": Definition(_smi("temperature_memory")),
    "gpu_power_watts": Definition(_smi("power_draw_watts")),
    "gpu_power_limit_watts": Definition(_smi("enforced_power_limit_watts")),
    "gpu_thermal_throttle_ratio": Definition(_THERMAL),
    "gpu_power_throttle_ratio": Definition(
        _POWER, note="a card at full load shows it in good health: judge by the clock"
    ),
    "gpu_power_brake_ratio": Definition(_BRAKE, note="hardware slowdown and power brake, as sampled"),
    "gpu_memory_used_bytes": Definition(_smi("memory_used_bytes")),
    "gpu_foreign_memory_bytes": Definition(
        _FOREIGN, note="processes named python are taken for ours; needs --query-compute-apps"
    ),
    "gpu_foreign_sm_ratio": Absent("nvidia-smi prints no per-process SM use"),
    "gpu_xid_events": Definition(
        total(Gauge(select("nvidia_smi_xid_errors_total"), "last"), GPU_BY),
        verified=False,
        note="the NVML back end only",
    ),
    "gpu_remapped_rows": Definition(_smi("remapped_rows_uncorrectable", "last")),
    "gpu_link_width_ratio": Definition(
        share(ratio(_smi("pcie_link_width_current"), _smi("pcie_link_width_max")))
    ),
    "gpu_link_generation_ratio": Definition(
        share(ratio(_smi("pcie_link_gen_current"), _smi("pcie_link_gen_max"))), note="idle links shift down"
    ),
    "gpu_link_errors_per_second": Absent("nvidia-smi prints no replay counter: run diag-exporter gpu"),
    "gpu_nvlink_active_ratio": Absent("nvidia-smi's table of fields has no NVLinks"),
    "gpu_numa_match_ratio": Absent("it tells nothing of where processes run"),
    "gpu_xid_code": Absent("only the NVML back end counts Xids, by label, without a last code"),
    "gpu_uncorrectable_ecc_errors": Definition(_smi("ecc_errors_uncorrected_volatile_total", "last")),
}

NVIDIA_GPU_EXPORTER = Engine(
    name="nvidia_gpu_exporter",
    title="nvidia_gpu_exporter",
    probe=select("nvidia_smi_utilization_gpu_ratio", "nvidia_smi_gpu_info"),
    signals=_SIGNALS,
    labels=GPU_LABELS,
)
