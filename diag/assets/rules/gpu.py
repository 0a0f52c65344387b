"""GPUs, by card, whichever exporter tells about them.

What an exporter does not export stays silent here, and silence is not health: ``diag assets check``
says which of these alerts are blind. dcgm-exporter's default counters have no throttle reason, no
ECC and no link; ``deploy/dcgm/counters.csv`` has them.
"""

from __future__ import annotations

from diag.assets.rules import thresholds as t
from diag.assets.rules.model import Alert, RuleFile, all_of, any_of

__all__ = ["FATAL_XIDS", "GPU"]

FATAL_XIDS = (38, 48, 61, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 149, 155, 158)
"""Xid codes after which the GPU, its memory or its links need a reset or worse; the same list as the
exporter's ``class="fatal"`` (the two share no code; a test compares them)."""

_APP_XIDS = (13, 31, 32, 43, 45, 68, 69, 137)
_ANY = ("llmdiag|dcgm|nvidia_gpu_exporter",)
_CARD = "cluster, job, instance, node, gpu, uuid"
_DCGM_CARD = "cluster, job, instance, Hostname, gpu, UUID"
_WHICH = ("instance", "gpu")
_NAMED = "GPU {{ $labels.gpu }} ({{ $labels.uuid }}) at {{ $labels.instance }}"


def _codes(codes: tuple[int, ...]) -> str:
    return '{xid=~"' + "|".join(map(str, codes)) + '"}'


_THERMAL = Alert(
    name="GPUThermalThrottle",
    expr=f"gpu:thermal_throttle_ratio > {t.THERMAL_SHARE}",
    severity="warning",
    component="gpu",
    summary="Heat holds a GPU's clock down.",
    description=_NAMED + " is slowed by heat {{ $value | humanizePercentage }} of the time.",
    runbook="thermal_throttle",
    dashboard="gpu",
    needs=_ANY,
    causes=("thermal_throttle",),
    thresholds=(t.THERMAL_SHARE,),
    subject=_WHICH,
    for_seconds=300,
)

_BRAKE = Alert(
    name="GPUPowerBrake",
    expr=f"gpu:power_brake_ratio > {t.POWER_BRAKE}",
    severity="warning",
    component="gpu",
    summary="An external power brake holds a GPU's clock down.",
    description=_NAMED + " is braked from outside {{ $value | humanizePercentage }} of the time.",
    runbook="power_cap",
    dashboard="gpu",
    needs=_ANY,
    causes=("power_cap", "gpu_hardware_fault"),
    thresholds=(t.POWER_BRAKE,),
    subject=_WHICH,
    for_seconds=600,
)

_CAPPED = Alert(
    name="GPUPowerCapped",
    expr=all_of(
        f"gpu:power_throttle_ratio > {t.POWER_CAPPED}",
        f"gpu:sm_clock_hertz < {t.CLOCK_CAPPED} * gpu:sm_clock_max_hertz",
    ),
    severity="info",
    component="gpu",
    summary="A power limit costs a GPU much of its clock.",
    description=(
        _NAMED
        + " is held by its power limit {{ $value | humanizePercentage }} of the time, and its clock is far "
        "below its highest."
    ),
    runbook="power_cap",
    dashboard="gpu",
    needs=_ANY,
    causes=("power_cap",),
    thresholds=(t.POWER_CAPPED, t.CLOCK_CAPPED),
    subject=_WHICH,
    for_seconds=600,
)

_CLOCK_LOW = Alert(
    name="GPUClockLow",
    expr=all_of(
        f"gpu:sm_clock_hertz < {t.CLOCK_CAPPED} * max_over_time(gpu:sm_clock_hertz[1d])",
        f"gpu:utilization_ratio > {t.CLOCK_JUDGED}",
    ),
    severity="warning",
    component="gpu",
    summary="A GPU at work runs far below the clock that it had.",
    description=(
        _NAMED
        + " runs at {{ $value | humanize }}Hz while it is at work, far below the highest of the last day, "
        "whether or not the driver gives a reason."
    ),
    runbook="power_cap",
    dashboard="gpu",
    needs=_ANY,
    causes=("power_cap", "thermal_throttle", "slow_gpu", "gpu_hardware_fault"),
    thresholds=(t.CLOCK_CAPPED, t.CLOCK_JUDGED),
    subject=_WHICH,
    for_seconds=600,
    comment=(
        "dcgm-exporter's default counters have no throttle reason and no highest clock; this needs neither."
    ),
)

_XID_FATAL = Alert(
    name="GPUXidFatal",
    expr=any_of(
        f'sum by ({_CARD}) (increase(llmdiag_gpu_xid_total{{class="fatal"}}[10m])) > 0',
        f"max by ({_DCGM_CARD}) (DCGM_EXP_XID_ERRORS_COUNT{_codes(FATAL_XIDS)}) > 0",
        '(\n  gpu:xid_code{producer="dcgm"} != gpu:xid_code{producer="dcgm"} offset 10m\n  and (\n    '
        + "\n    or ".join(f'gpu:xid_code{{producer="dcgm"}} == {code}' for code in FATAL_XIDS)
        + "\n  )\n)",
    ),
    severity="critical",
    component="gpu",
    summary="A GPU reported an error that it does not recover from by itself.",
    description=(
        "GPU {{ $labels.gpu }} at {{ $labels.instance }} reported an Xid after which it needs a reset or "
        "worse. Drain the engines on it."
    ),
    runbook="gpu_hardware_fault",
    dashboard="gpu",
    needs=("llmdiag|dcgm",),
    causes=("gpu_hardware_fault",),
    subject=_WHICH,
    keep_firing_seconds=900,
    comment=(
        "By what there is: diag-exporter's count, DCGM's count within its own window, DCGM's last code where "
        "it is another than ten minutes ago (the gauge keeps its code for days, and a repeated code is "
        "invisible)."
    ),
)

_XID_APP = Alert(
    name="GPUXidAppFault",
    expr=any_of(
        f'sum by ({_CARD}) (increase(llmdiag_gpu_xid_total{{class="app"}}[1h])) > {t.XID_APP}',
        f"sum by ({_DCGM_CARD}) (DCGM_EXP_XID_ERRORS_COUNT{_codes(_APP_XIDS)}) > {t.XID_APP}",
    ),
    severity="warning",
    component="gpu",
    summary="Programs on a GPU fault again and again.",
    description=(
        "GPU {{ $labels.gpu }} at {{ $labels.instance }} reported {{ $value | humanize }} faults of "
        "programs: ask whose process it was before suspecting the card."
    ),
    runbook="gpu_hardware_fault",
    dashboard="gpu",
    needs=("llmdiag|dcgm",),
    causes=("gpu_hardware_fault", "engine_restart", "noisy_neighbour"),
    thresholds=(t.XID_APP,),
    subject=_WHICH,
)

_ECC = Alert(
    name="GPUUncorrectableECC",
    expr="delta(gpu:uncorrectable_ecc_errors[15m]) > 0",
    severity="critical",
    component="gpu",
    summary="A GPU's memory had an error that could not be corrected.",
    description=_NAMED + " had an uncorrectable memory error within a quarter of an hour.",
    runbook="gpu_hardware_fault",
    dashboard="gpu",
    needs=_ANY,
    causes=("gpu_hardware_fault",),
    subject=_WHICH,
    keep_firing_seconds=3600,
)

_REMAP_PENDING = Alert(
    name="GPURowRemapPending",
    expr=any_of(
        "llmdiag_gpu_row_remap_pending == 1",
        "DCGM_FI_DEV_ROW_REMAP_PENDING == 1",
        "nvidia_smi_remapped_rows_pending == 1",
    ),
    severity="warning",
    component="gpu",
    summary="A GPU waits for a reset to replace memory rows.",
    description=(
        "A GPU at {{ $labels.instance }} found bad memory rows and replaces them at its next reset; until "
        "then errors can come back."
    ),
    runbook="gpu_hardware_fault",
    dashboard="gpu",
    needs=_ANY,
    causes=("gpu_hardware_fault",),
    subject=_WHICH,
    for_seconds=300,
)

_REMAP_FAILED = Alert(
    name="GPURowRemapFailed",
    expr=any_of(
        "llmdiag_gpu_row_remap_failure == 1",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE == 1",
        "nvidia_smi_remapped_rows_failure == 1",
    ),
    severity="critical",
    component="gpu",
    summary="A GPU has no spare memory rows left.",
    description=(
        "A GPU at {{ $labels.instance }} could not replace a bad memory row: the card is to be exchanged."
    ),
    runbook="gpu_hardware_fault",
    dashboard="gpu",
    needs=_ANY,
    causes=("gpu_hardware_fault",),
    subject=_WHICH,
    for_seconds=300,
)

_NVLINK = Alert(
    name="GPUNVLinkErrors",
    expr=any_of(
        'increase(llmdiag_gpu_nvlink_errors_total{kind="recovery"}[15m]) > 0',
        f'increase(llmdiag_gpu_nvlink_errors_total{{kind!="recovery"}}[15m]) > {t.NVLINK_ERRORS}',
        "increase(DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL[15m]) > 0",
        f"increase(DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL[15m]) > {t.NVLINK_ERRORS}",
    ),
    severity="warning",
    component="gpu",
    summary="An NVLink of a GPU makes errors.",
    description=(
        "GPU {{ $labels.gpu }} at {{ $labels.instance }} had {{ $value | humanize }} NVLink errors within a "
        "quarter of an hour; tensor-parallel engines wait for the slowest link."
    ),
    runbook="gpu_link_degraded",
    dashboard="gpu",
    needs=("llmdiag|dcgm",),
    causes=("gpu_link_degraded", "gpu_hardware_fault"),
    thresholds=(t.NVLINK_ERRORS,),
    subject=_WHICH,
    for_seconds=300,
)

_PCIE = Alert(
    name="GPUPCIeLinkDegraded",
    expr=any_of(
        f"(gpu:link_width_ratio <= {t.LINK_PART} and gpu:utilization_ratio > {t.LINK_UNDER_LOAD})",
        f"(gpu:link_generation_ratio <= {t.LINK_PART} and gpu:utilization_ratio > {t.LINK_UNDER_LOAD})",
        f"rate(llmdiag_gpu_pcie_replays_total[5m]) > {t.LINK_REPLAYS}",
        f"rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[5m]) > {t.LINK_REPLAYS}",
    ),
    severity="warning",
    component="gpu",
    summary="A GPU's PCIe link is slower than it should be.",
    description=(
        "GPU {{ $labels.gpu }} at {{ $labels.instance }} works with fewer lanes or an older generation than "
        'it could, or repeats packets ({{ printf "%.2g" $value }}).'
    ),
    runbook="gpu_link_degraded",
    dashboard="gpu",
    needs=_ANY,
    causes=("gpu_link_degraded",),
    thresholds=(t.LINK_PART, t.LINK_UNDER_LOAD, t.LINK_REPLAYS),
    subject=_WHICH,
    for_seconds=900,
    comment="Idle links shift down on purpose: only cards at work count.",
)

_FOREIGN = Alert(
    name="GPUForeignProcess",
    expr=any_of(
        f"gpu:foreign_memory_bytes > {t.FOREIGN_MEMORY}",
        f"gpu:foreign_sm_ratio > {t.FOREIGN_SM}",
    ),
    severity="warning",
    component="gpu",
    summary="A program that serves no model uses an engine's GPU.",
    description="Another program works on "
    + _NAMED
    + ": it has {{ if gt $value 1.0 }}{{ $value | humanize }}B of its memory"
    "{{ else }}{{ $value | humanizePercentage }} of its time{{ end }}.",
    runbook="noisy_neighbour",
    dashboard="gpu",
    needs=("llmdiag|nvidia_gpu_exporter",),
    causes=("noisy_neighbour",),
    thresholds=(t.FOREIGN_MEMORY, t.FOREIGN_SM),
    subject=_WHICH,
    for_seconds=600,
)

GPU = RuleFile(
    path="alerts/gpu.yml",
    title="GPUs",
    text="By card, from diag-exporter, dcgm-exporter (with deploy/dcgm/counters.csv) or nvidia_gpu_exporter.",
    needs=_ANY,
    alerts=(
        _THERMAL, _BRAKE, _CAPPED, _CLOCK_LOW, _XID_FATAL, _XID_APP, _ECC, _REMAP_PENDING, _REMAP_FAILED,
        _NVLINK, _PCIE, _FOREIGN,
    ),
)  # fmt: skip
