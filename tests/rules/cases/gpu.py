"""rules/alerts/gpu.yml: by card, from three exporters. Trouble lasts from minute 20 to 60."""

from __future__ import annotations

from collections.abc import Mapping

from tests.rules.cases.case import Case, Fires, Told, counter, gauge, silent
from tests.rules.cases.engines import written

__all__ = ["CASES"]

_WORN = ("instance", "gpu")


def _told(alert: str, severity: str, summary: str, runbook: str, subject: tuple[str, ...] = _WORN) -> Told:
    return Told(alert, severity, "gpu", summary, runbook, "gpu", subject, variables={"instance": "host"})


_HEAT = _told("GPUThermalThrottle", "warning", "Heat holds a GPU's clock down.", "thermal_throttle")
_BRAKE = _told("GPUPowerBrake", "warning", "An external power brake holds a GPU's clock down.", "power_cap")
_CAPPED = _told("GPUPowerCapped", "info", "A power limit costs a GPU much of its clock.", "power_cap")
_CLOCK = _told("GPUClockLow", "warning", "A GPU at work runs far below the clock that it had.", "power_cap")
_FATAL = _told(
    "GPUXidFatal",
    "critical",
    "A GPU reported an error that it does not recover from by itself.",
    "gpu_hardware_fault",
)
_APP = _told("GPUXidAppFault", "warning", "Programs on a GPU fault again and again.", "gpu_hardware_fault")
_ECC = _told(
    "GPUUncorrectableECC",
    "critical",
    "A GPU's memory had an error that could not be corrected.",
    "gpu_hardware_fault",
)
_PENDING = _told(
    "GPURowRemapPending", "warning", "A GPU waits for a reset to replace memory rows.", "gpu_hardware_fault"
)
_FAILED = _told("GPURowRemapFailed", "critical", "A GPU has no spare memory rows left.", "gpu_hardware_fault")
_NVLINK = _told("GPUNVLinkErrors", "warning", "An NVLink of a GPU makes errors.", "gpu_link_degraded")
_PCIE = _told(
    "GPUPCIeLinkDegraded", "warning", "A GPU's PCIe link is slower than it should be.", "gpu_link_degraded"
)
_FOREIGN = _told(
    "GPUForeignProcess", "warning", "A program that serves no model uses an engine's GPU.", "noisy_neighbour"
)

_OURS = {"instance": "n:9877", "job": "llmdiag", "gpu": "0", "uuid": "GPU-1"}
_DCGM = {"instance": "n:9400", "job": "dcgm", "gpu": "0", "UUID": "GPU-1", "Hostname": "h"}
_SMI = {"instance": "n:9835", "job": "smi", "uuid": "1-2"}
# What is recorded of the same card, whoever told of it.
_OURS_SEEN = {**_OURS, "producer": "llmdiag"}
_DCGM_SEEN = {
    "instance": "n:9400",
    "job": "dcgm",
    "gpu": "0",
    "uuid": "GPU-1",
    "node": "h",
    "producer": "dcgm",
}
_SMI_SEEN = {"instance": "n:9835", "job": "smi", "uuid": "GPU-1-2", "producer": "nvidia_gpu_exporter"}


def _ours(name: str, **more: str) -> str:
    return written(f"llmdiag_gpu_{name}", {**_OURS, **more})


def _dcgm(field: str, **more: str) -> str:
    return written(f"DCGM_{field}", {**_DCGM, **more})


def _smi(name: str, **more: str) -> str:
    return written(f"nvidia_smi_{name}", {**_SMI, **more})


def _trouble(growth: float) -> str:
    return counter((20, 0), (40, growth), (30, 0))


def _held(value: float, calm: float = 0.0) -> str:
    return gauge((20, calm), (40, value), (30, calm))


def _reason(reason: str, seconds: float) -> dict[str, str]:
    return {_ours("clock_event_seconds_total", reason=reason): _trouble(seconds)}


def _card(seen: Mapping[str, str], text: str) -> Fires:
    return Fires(seen, f"GPU {seen.get('gpu', '')} ({seen['uuid']}) at {seen['instance']} {text}")


# Nine seconds a minute are 15 %; five minutes pass 10 % at 24.
_HOT = (
    Case(
        _HEAT, "diag-exporter", _reason("sw_thermal", 9), silent=(19, 28, 62),
        fires={29: [_card(_OURS_SEEN, "is slowed by heat 15% of the time.")]},
    ),
    Case(
        _HEAT, "the other reason", _reason("hw_thermal", 9), silent=(28,),
        fires={29: [_card(_OURS_SEEN, "is slowed by heat 15% of the time.")]},
    ),
    Case(
        _HEAT, "dcgm-exporter, bit 0x20", {_dcgm("FI_DEV_CLOCKS_EVENT_REASONS"): _held(0x20)}, silent=(19, 24, 60),
        fires={25: [_card(_DCGM_SEEN, "is slowed by heat 100% of the time.")]},
    ),
    Case(
        _HEAT, "dcgm-exporter, bit 0x40 by its older name", {_dcgm("FI_DEV_CLOCK_THROTTLE_REASONS"): _held(0x40)},
        silent=(19, 24, 60), fires={25: [_card(_DCGM_SEEN, "is slowed by heat 100% of the time.")]},
    ),
    Case(
        _HEAT, "dcgm-exporter, nanoseconds", {_dcgm("FI_DEV_THERMAL_VIOLATION"): _trouble(9e9)}, silent=(19, 28, 62),
        fires={29: [_card(_DCGM_SEEN, "is slowed by heat 15% of the time.")]},
    ),
    Case(
        _HEAT, "nvidia_gpu_exporter",
        {
            _smi("clocks_event_reasons_counters_sw_thermal_slowdown_seconds"): _trouble(9),
            _smi("clocks_event_reasons_counters_hw_thermal_slowdown_seconds"): _trouble(0),
        },
        silent=(19, 28, 62), fires={29: [_card(_SMI_SEEN, "is slowed by heat 15% of the time.")]},
    ),
    silent(_HEAT, "a little heat", _reason("sw_thermal", 4.2), 29, 55),
    silent(_HEAT, "a power cap", _reason("sw_power_cap", 50), 29, 55),
    silent(_HEAT, "dcgm-exporter, higher bits", {_dcgm("FI_DEV_CLOCKS_EVENT_REASONS"): _held(0x180)}, 29, 55),
)  # fmt: skip
_BRAKED = (
    Case(
        _BRAKE, "diag-exporter", _reason("hw_power_brake", 45), silent=(19, 33, 62),
        fires={34: [_card(_OURS_SEEN, "is braked from outside 75% of the time.")]},
    ),
    Case(
        _BRAKE, "dcgm-exporter, bit 0x80", {_dcgm("FI_DEV_CLOCKS_EVENT_REASONS"): _held(0x80)}, silent=(19, 29, 60),
        fires={30: [_card(_DCGM_SEEN, "is braked from outside 100% of the time.")]},
    ),
    silent(_BRAKE, "a third of the time", _reason("hw_power_brake", 18), 34, 55),
)  # fmt: skip


def _capped(seconds: float, clock: float) -> dict[str, str]:
    return {
        **_reason("sw_power_cap", seconds),
        _ours("sm_clock_hertz"): gauge((90, clock)),
        _ours("sm_clock_max_hertz"): gauge((90, 2e9)),
    }


_CAPS = (
    Case(
        _CAPPED, "diag-exporter", _capped(57.6, 1.2e9), silent=(19, 34, 61),
        fires={35: [_card(_OURS_SEEN, "is held by its power limit 96% of the time, and its clock is far below its highest.")]},
    ),
    silent(_CAPPED, "at full load the cap is normal", _capped(57.6, 1.8e9), 35, 55),
    silent(_CAPPED, "half of the time", _capped(36, 1.2e9), 35, 55),
)  # fmt: skip


def _at_work(low: float, busy: float = 0.9) -> dict[str, str]:
    return {_ours("sm_clock_hertz"): _held(low, 2e9), _ours("utilization_ratio"): gauge((90, busy))}


_CLOCKS = (
    # (2 · 1 + 1.2 · 5) / 6 = 1.33 GHz at 24 is the first below 1.4.
    Case(
        _CLOCK, "diag-exporter", _at_work(1.2e9), silent=(19, 33, 61),
        fires={
            34: [
                _card(
                    _OURS_SEEN,
                    "runs at 1.2GHz while it is at work, far below the highest of the last day, whether or not the driver "
                    "gives a reason.",
                )
            ]
        },
    ),
    silent(_CLOCK, "a little lower", _at_work(1.8e9), 34, 55),
    silent(_CLOCK, "idle cards rest", _at_work(1.2e9, 0.6), 34, 55),
)  # fmt: skip

_DEAD = "reported an Xid after which it needs a reset or worse. Drain the engines on it."
_CODES = (38, 48, 61, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 149, 155, 158)
_HARMLESS = (13, 31, 32, 43, 45, 63, 68, 69, 94, 137)


def _dead(labels: Mapping[str, str]) -> Fires:
    return Fires(labels, f"GPU {labels['gpu']} at {labels['instance']} {_DEAD}")


def _xids(codes: tuple[int, ...]) -> dict[str, str]:
    """One card each, whose last code stays for good."""
    return {
        _dcgm("FI_DEV_XID_ERRORS", gpu=f"{code}", UUID=f"GPU-{code}"): gauge((20, 0), (60, code))
        for code in codes
    }


_XIDS = (
    # An event lies within ten minutes until 29, and the alert is kept for a quarter of an hour.
    Case(
        _FATAL, "diag-exporter", {_ours("xid_total", **{"class": "fatal", "xid": "79"}): "0x19 1x60"},
        silent=(19, 45), fires={20: [_dead(_OURS)], 44: [_dead(_OURS)]},
    ),
    Case(
        _FATAL, "in a cluster with a hostile name",
        {_ours("xid_total", **{"class": "fatal", "xid": "79", "cluster": "eu; rm -rf $HOME"}): "0x19 1x60"},
        silent=(19,), fires={20: [_dead({**_OURS, "cluster": "eu; rm -rf $HOME"})]},
    ),
    silent(_FATAL, "a program's fault", {_ours("xid_total", **{"class": "app", "xid": "31"}): "0x19 1x60"}, 20, 25),
    Case(
        _FATAL, "dcgm-exporter's count over its window", {_dcgm("EXP_XID_ERRORS_COUNT", xid="79"): "0x19 1x4 0x60"},
        silent=(19, 40), fires={20: [_dead(_DCGM)], 39: [_dead(_DCGM)]},
    ),
    silent(_FATAL, "a program's fault in dcgm-exporter's count", {_dcgm("EXP_XID_ERRORS_COUNT", xid="31"): "0x19 1x60"}, 20),
    Case(
        _FATAL, "dcgm-exporter's last code, which sticks", _xids(_CODES), silent=(19, 45, 60),
        fires={
            20: [_dead({**_DCGM_SEEN, "gpu": f"{code}", "uuid": f"GPU-{code}"}) for code in _CODES],
            44: [_dead({**_DCGM_SEEN, "gpu": f"{code}", "uuid": f"GPU-{code}"}) for code in _CODES],
        },
    ),
    silent(_FATAL, "other last codes", _xids(_HARMLESS), 20, 25),
    Case(
        _APP, "diag-exporter",
        {
            _ours("xid_total", **{"class": "app", "xid": "31"}): "0x19 1x3 2x60",
            _ours("xid_total", **{"class": "app", "xid": "43"}): "0x21 1x3 2x60",
        },
        silent=(19, 25),
        fires={26: [Fires(_OURS, "GPU 0 at n:9877 reported 4 faults of programs: ask whose process it was before suspecting the card.")]},
    ),
    silent(_APP, "of the card itself", {_ours("xid_total", **{"class": "fatal", "xid": "79"}): "0x19 9x60"}, 20, 30),
    Case(
        _APP, "dcgm-exporter",
        {
            _dcgm("EXP_XID_ERRORS_COUNT", xid="31"): "0x19 2x4 0x60",
            _dcgm("EXP_XID_ERRORS_COUNT", xid="13"): "0x19 1x1 2x2 0x60",
        },
        silent=(19, 21, 25),
        fires={22: [Fires(_DCGM, "GPU 0 at n:9400 reported 4 faults of programs: ask whose process it was before suspecting the card.")]},
    ),
    silent(_APP, "of the card itself in dcgm-exporter's count", {_dcgm("EXP_XID_ERRORS_COUNT", xid="79"): "0x19 9x60"}, 22),
)  # fmt: skip


def _error(seen: Mapping[str, str]) -> Fires:
    return _card(seen, "had an uncorrectable memory error within a quarter of an hour.")


_ECCS = (
    Case(
        _ECC, "diag-exporter", {_ours("ecc_errors_total", kind="uncorrected", lifetime="volatile"): "0x19 1x90"},
        silent=(19, 95), fires={20: [_error(_OURS_SEEN)], 94: [_error(_OURS_SEEN)]},
    ),
    Case(
        _ECC, "dcgm-exporter", {_dcgm("FI_DEV_ECC_DBE_VOL_TOTAL"): "3x19 4x90"},
        silent=(19,), fires={20: [_error(_DCGM_SEEN)]},
    ),
    Case(
        _ECC, "nvidia_gpu_exporter", {_smi("ecc_errors_uncorrected_volatile_total"): "3x19 4x90"},
        silent=(19,), fires={20: [_error(_SMI_SEEN)]},
    ),
    silent(_ECC, "corrected", {_ours("ecc_errors_total", kind="corrected", lifetime="volatile"): "0x19 9x60"}, 20, 30),
)  # fmt: skip

_ROWS = (
    (_PENDING, "row_remap_pending", "FI_DEV_ROW_REMAP_PENDING", "remapped_rows_pending",
     "found bad memory rows and replaces them at its next reset; until then errors can come back."),
    (_FAILED, "row_remap_failure", "FI_DEV_ROW_REMAP_FAILURE", "remapped_rows_failure",
     "could not replace a bad memory row: the card is to be exchanged."),
)  # fmt: skip
_REMAPS = tuple(
    Case(
        told, who, {series: _held(1)}, silent=(19, 24, 60),
        fires={25: [Fires(labels, f"A GPU at {labels['instance']} {text}")]},
    )
    for told, ours, dcgm, smi, text in _ROWS
    for who, series, labels in (
        ("diag-exporter", _ours(ours), _OURS),
        ("dcgm-exporter", _dcgm(dcgm), _DCGM),
        ("nvidia_gpu_exporter", _smi(smi), _SMI),
    )
)  # fmt: skip


def _linked(labels: Mapping[str, str], errors: str) -> Fires:
    return Fires(
        labels,
        f"GPU 0 at {labels['instance']} had {errors} NVLink errors within a quarter of an hour; tensor-parallel engines wait "
        "for the slowest link.",
    )


_RECOVERED = {**_OURS, "kind": "recovery"}
_FLITS = {**_OURS, "kind": "crc_flit"}
# Ten errors a minute pass a hundred at 31, and are 150 in a quarter of an hour.
_NVLINKS = (
    Case(
        _NVLINK, "a recovery", {_ours("nvlink_errors_total", kind="recovery"): "0x19 1x60"},
        silent=(19, 24, 35), fires={25: [_linked(_RECOVERED, "1")]},
    ),
    Case(
        _NVLINK, "flits", {_ours("nvlink_errors_total", kind="crc_flit"): _trouble(10)},
        silent=(19, 35), fires={36: [_linked(_FLITS, "150")]},
    ),
    silent(_NVLINK, "few flits", {_ours("nvlink_errors_total", kind="crc_flit"): _trouble(4)}, 36, 55),
    Case(
        _NVLINK, "a recovery, dcgm-exporter", {_dcgm("FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"): "0x19 1x60"},
        silent=(19, 24, 35), fires={25: [_linked(_DCGM, "1")]},
    ),
    Case(
        _NVLINK, "flits, dcgm-exporter", {_dcgm("FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"): _trouble(10)},
        silent=(19, 35), fires={36: [_linked(_DCGM, "150")]},
    ),
    silent(_NVLINK, "few flits, dcgm-exporter", {_dcgm("FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"): _trouble(4)}, 36, 55),
)  # fmt: skip


def _slower(labels: Mapping[str, str], value: str) -> Fires:
    return Fires(
        labels,
        f"GPU 0 at {labels['instance']} works with fewer lanes or an older generation than it could, or repeats packets "
        f"({value}).",
    )


def _lanes(now: float, busy: float = 0.3) -> dict[str, str]:
    return {
        _ours("pcie_link_width"): _held(now, 16),
        _ours("pcie_link_width_max"): gauge((90, 16)),
        _ours("pcie_link_generation"): gauge((90, 5)),
        _ours("pcie_link_generation_max"): gauge((90, 5)),
        _ours("utilization_ratio"): gauge((90, busy)),
    }


_GENERATION = _ours("pcie_link_generation")
# (16 · 3 + 8 · 3) / 6 = 12 of 16 at 22.
_LINKS = (
    Case(_PCIE, "half the lanes", _lanes(8), silent=(19, 36, 63), fires={37: [_slower(_OURS_SEEN, "0.5")]}),
    Case(
        _PCIE, "an older generation", {**_lanes(16), _GENERATION: _held(3, 5)}, silent=(19, 37, 62),
        fires={38: [_slower(_OURS_SEEN, "0.6")]},
    ),
    silent(_PCIE, "one lane group less", _lanes(14), 37, 55),
    silent(_PCIE, "idle cards shift down", {**_lanes(8, 0.15), _GENERATION: _held(1, 5)}, 37, 55),
    Case(
        _PCIE, "replays", {_ours("pcie_replays_total"): _trouble(9)}, silent=(19, 38, 62), fires={39: [_slower(_OURS, "0.15")]}
    ),
    silent(_PCIE, "few replays", {_ours("pcie_replays_total"): _trouble(4.2)}, 39, 55),
    Case(
        _PCIE, "replays, dcgm-exporter", {_dcgm("FI_DEV_PCIE_REPLAY_COUNTER"): _trouble(9)}, silent=(19, 38, 62),
        fires={39: [_slower(_DCGM, "0.15")]},
    ),
    silent(_PCIE, "few replays, dcgm-exporter", {_dcgm("FI_DEV_PCIE_REPLAY_COUNTER"): _trouble(4.2)}, 39, 55),
)  # fmt: skip


def _stranger(what: str) -> Fires:
    return Fires(_OURS_SEEN, f"Another program works on GPU 0 (GPU-1) at n:9877: it has {what}.")


_STRANGERS = (
    Case(
        _FOREIGN, "memory", {_ours("foreign_memory_bytes"): _held(1.5e9)}, silent=(19, 33, 62),
        fires={34: [_stranger("1.5GB of its memory")]},
    ),
    Case(
        _FOREIGN, "time", {_ours("foreign_sm_ratio"): _held(0.15)}, silent=(19, 33, 62),
        fires={34: [_stranger("15% of its time")]},
    ),
    silent(
        _FOREIGN, "little of both",
        {_ours("foreign_memory_bytes"): _held(0.7e9), _ours("foreign_sm_ratio"): _held(0.07)}, 34, 55,
    ),
)  # fmt: skip

CASES = (
    *_HOT, *_BRAKED, *_CAPS, *_CLOCKS, *_XIDS, *_ECCS, *_REMAPS, *_NVLINKS, *_LINKS, *_STRANGERS,
)  # fmt: skip
"""Every case of this file."""
