"""GPU health and neighbours, and the host under them."""

from __future__ import annotations

from dashboards.src import shared
from dashboards.src.boards.machine import HOST_PANELS
from dashboards.src.limits import line
from dashboards.src.model import Board, Panel, Query, Row, State
from dashboards.src.queries import HOST, expression, of, raw
from diag.assets.rules import thresholds as t
from diag.engines import engine

__all__ = ["GPUS"]

_GPU = "{{instance}} GPU {{gpu}}"
_EXPORTERS = (("llmdiag", _GPU), ("dcgm", _GPU), ("nvidia_gpu_exporter", "{{instance}} {{uuid}}"))
_OPTIONAL_DCGM = {
    "dcgm": "the simulated dcgm-exporter runs with its default fields, which leave this one out"
}
_XIDS = {
    "nvidia_gpu_exporter": "its NVML back end alone counts Xids",
    "dcgm": "the count of Xids is none of dcgm-exporter's default fields",
}


def _gpu(title: str, text: str, unit: str, name: str, **more: object) -> Panel:
    absent = more.pop("absent", None)
    queries = of(name, absent=absent)  # type: ignore[arg-type]
    return Panel(title, text, unit, queries, drill="gpu", variable="host", **more)  # type: ignore[arg-type]


_CLOCK = Panel(
    "SM clock, of its highest",
    "What is left of the clock. Below the line with a power cap is the alert's case; low at low load is no fault.",
    "percentunit",
    tuple(
        Query(
            f"({expression('gpu_sm_clock_hertz', engine(name))}) "
            f"/ ({expression('gpu_sm_clock_max_hertz', engine(name))})",
            legend,
            name,
            "30s",
        )
        for name, legend in _EXPORTERS
    ),
    maximum=1.0,
    runbooks=("thermal_throttle", "power_cap", "slow_gpu"),
    limits=(line("GPUClockLow", t.CLOCK_CAPPED), line("GPUPowerCapped", t.CLOCK_CAPPED)),
    drill="gpu",
    variable="host",
)
_CAPPED = _gpu(
    "Clock held down by the power cap",
    "Share of time. A sound card at full load shows it too: judge it together with the clock.",
    "percentunit",
    "gpu_power_throttle_ratio",
    maximum=1.0,
    runbooks=("power_cap",),
    limits=(line("GPUPowerCapped", t.POWER_CAPPED),),
)
_BRAKE = _gpu(
    "Clock held down by the brake",
    "Share of time in hardware slowdown or under an external power brake: the chassis or the facility asks for it.",
    "percentunit",
    "gpu_power_brake_ratio",
    maximum=1.0,
    runbooks=("power_cap",),
    limits=(line("GPUPowerBrake", t.POWER_BRAKE),),
)
_POWER = _gpu(
    "Power",
    "Of the board. Full utilisation at little power is a card that waits, not one that works.",
    "watt",
    "gpu_power_watts",
    runbooks=("power_cap", "standstill"),
)
_LIMIT = _gpu(
    "Power limit",
    "As enforced. A step down was set by somebody, or by the chassis.",
    "watt",
    "gpu_power_limit_watts",
    runbooks=("power_cap",),
)
_BUSY = _gpu(
    "Utilisation",
    "Share of time with any kernel running, whoever's it is. It falls while requests wait when the host is the "
    "limit.",
    "percentunit",
    "gpu_utilization_ratio",
    maximum=1.0,
    runbooks=("host_cpu_starvation", "noisy_neighbour"),
)
_FOREIGN = _gpu(
    "Memory of other processes",
    "Held by processes that serve no model. Who they are, by name: the panel below.",
    "bytes",
    "gpu_foreign_memory_bytes",
    runbooks=("noisy_neighbour",),
    limits=(line("GPUForeignProcess", t.FOREIGN_MEMORY),),
)
_WHO = Panel(
    "GPU memory by process",
    "The largest now, by name and owner: own serves models here, foreign does not, unknown runs outside of what "
    "the exporter sees.",
    "bytes",
    (
        raw(
            f"topk(8, sum by (instance, process, owner) (llmdiag_gpu_process_memory_bytes{{{HOST}}}))",
            "{{instance}} {{process}} ({{owner}})",
            "llmdiag",
        ),
    ),
    kind="bargauge",
    width=16,
    runbooks=("noisy_neighbour",),
)
_XID = _gpu(
    "Xid errors",
    "Counted so far. A step is an event, a level is history: the exporter's start or the driver's.",
    "short",
    "gpu_xid_events",
    runbooks=("gpu_hardware_fault",),
    alerts=("GPUXidFatal", "GPUXidAppFault"),
    absent=_XIDS,
)
_CODE = _gpu(
    "Last Xid code",
    "Stays until the exporter restarts. 13, 31, 43 and 45 are mostly a program's fault; 48, 79 and 94 to 120 a card's.",
    "none",
    "gpu_xid_code",
    runbooks=("gpu_hardware_fault",),
    alerts=("GPUXidFatal",),
)
_ECC = _gpu(
    "Uncorrectable memory errors",
    "Since the driver was loaded. Any step is news.",
    "short",
    "gpu_uncorrectable_ecc_errors",
    runbooks=("gpu_hardware_fault",),
    alerts=("GPUUncorrectableECC",),
)
_ROWS = Panel(
    "Row remapping",
    "Rows given up over the card's life, and whether a remap waits for a reset (1) or failed (1): then the card is "
    "to be exchanged.",
    "short",
    (
        *of("gpu_remapped_rows", "rows"),
        raw(f"llmdiag_gpu_row_remap_pending{{{HOST}}}", f"{_GPU} pending", "llmdiag",
            "the simulated exporter shows failures alone"),
        raw(f"llmdiag_gpu_row_remap_failure{{{HOST}}}", f"{_GPU} failed", "llmdiag"),
    ),
    runbooks=("gpu_hardware_fault",),
    alerts=("GPURowRemapPending", "GPURowRemapFailed"),
    drill="gpu",
    variable="host",
)  # fmt: skip
_ANSWER = Panel(
    "Cards that answer",
    "Whether each card answers the driver. One that fell off the bus is down until a reset or longer.",
    "none",
    (raw(f"min_over_time(llmdiag_gpu_up{{{HOST}}}[W])", _GPU, "llmdiag"),),
    kind="state-timeline",
    width=16,
    runbooks=("gpu_hardware_fault",),
    alerts=("GPULost",),
    states=(State(0.0, "lost", "red"), State(1.0, "answers", "green")),
    maximum=1.0,
)
_WIDTH = _gpu(
    "PCIe lanes in use",
    "Of those that card and slot allow. Read it under load: some cards give lanes back when idle.",
    "percentunit",
    "gpu_link_width_ratio",
    maximum=1.0,
    width=6,
    runbooks=("gpu_link_degraded",),
    limits=(line("GPUPCIeLinkDegraded", t.LINK_PART),),
)
_GENERATION = _gpu(
    "PCIe generation in use",
    "Of the highest possible. An idle card's link shifts down on purpose.",
    "percentunit",
    "gpu_link_generation_ratio",
    maximum=1.0,
    width=6,
    runbooks=("gpu_link_degraded",),
    limits=(line("GPUPCIeLinkDegraded", t.LINK_PART),),
)
_LINK_ERRORS = _gpu(
    "Link errors",
    "PCIe packets sent again and NVLink errors, a second. A sound link repeats one now and then.",
    "cps",
    "gpu_link_errors_per_second",
    width=6,
    runbooks=("gpu_link_degraded",),
    alerts=("GPUNVLinkErrors",),
    limits=(line("GPUPCIeLinkDegraded", t.LINK_REPLAYS),),
)
_NVLINKS = _gpu(
    "NVLinks that are up",
    "Of those the card has. Tensor-parallel steps wait for the slowest.",
    "percentunit",
    "gpu_nvlink_active_ratio",
    maximum=1.0,
    width=6,
    runbooks=("gpu_link_degraded",),
)
_MEMORY = _gpu(
    "Memory in use",
    "All of it, whoever's. Engines take their share at the start: high is normal, and a step is a neighbour.",
    "bytes",
    "gpu_memory_used_bytes",
    runbooks=("noisy_neighbour",),
)
_HOT_MEMORY = _gpu(
    "Memory temperature",
    "HBM throttles on its own sensor, which a cool core does not show.",
    "celsius",
    "gpu_memory_temperature_celsius",
    runbooks=("thermal_throttle",),
)

GPUS = Board(
    "gpu",
    "llm-diag / GPU health and neighbours",
    "Clocks and what holds them down, who else is on the card, faults, links, and the host under it all.",
    (
        Row(
            "Clocks and what holds them down",
            ("thermal_throttle", "power_cap", "slow_gpu"),
            (_CLOCK, shared.thermal(), shared.temperature(), _CAPPED, _BRAKE, _HOT_MEMORY, _POWER, _LIMIT,
             shared.inter_token()),
        ),
        Row("Neighbours", ("noisy_neighbour",), (shared.foreign_sm(), _FOREIGN, _BUSY, _MEMORY, _WHO)),
        Row("Faults", ("gpu_hardware_fault",), (_XID, _CODE, _ECC, _ROWS, _ANSWER)),
        Row("Links", ("gpu_link_degraded",), (_WIDTH, _GENERATION, _LINK_ERRORS, _NVLINKS)),
        Row(
            "The host",
            ("host_cpu_starvation", "host_memory_leak", "numa_misplacement", "runtime_pauses"),
            HOST_PANELS,
        ),
    ),
)  # fmt: skip
