"""diag-exporter (``llmdiag_*``): our own, for what the others leave out.

It carries throttle *time* as counters, so nothing between two scrapes is missed; maximum clocks and
limits beside what is measured; and whose process is on a card. Series of a card have ``uuid`` (as NVML
writes it) and ``gpu`` (the index); the target's ``instance`` is the host.
"""

from __future__ import annotations

from diag.engines.combine import GPU_BY, GPU_LABELS, added, at, share
from diag.engines.registry import Absent, Definition, Engine
from diag.signals.algebra import Aggregate, Expr, FirstOf, Gauge, Rate, ratio, select, total

__all__ = ["LLMDIAG"]


def _gpu(name: str, over: str = "avg") -> Expr:
    return at(Gauge(select(f"llmdiag_gpu_{name}"), "last" if over == "last" else "avg"), GPU_BY)


def _held(reasons: str) -> Expr:
    """Share of time these reasons held the clock down: by the driver's own counters, else as sampled.

    Two reasons at once count twice and are cut to the whole."""
    counted = total(Rate(select("llmdiag_gpu_clock_event_seconds_total", reason=reasons)), GPU_BY)
    sampled = at(Gauge(select("llmdiag_gpu_clock_event_active", reason=reasons), "avg"), GPU_BY)
    return share(FirstOf((counted, sampled)))


_BY = ("instance",)


def _requests(status: str) -> Expr:
    """Share of the session feeds' requests that ended so; every status is on the page from the start."""
    ended = total(Rate(select("llmdiag_requests_total", status=status)), _BY)
    return ratio(ended, total(Rate(select("llmdiag_requests_total")), _BY))


_UNCORRECTED = select("llmdiag_gpu_ecc_errors_total", kind="uncorrected", lifetime="volatile")

_SIGNALS: dict[str, Definition | Absent] = {
    "gpu_utilization_ratio": Definition(_gpu("utilization_ratio"), note="absent under MIG"),
    "gpu_sm_clock_hertz": Definition(_gpu("sm_clock_hertz")),
    "gpu_sm_clock_max_hertz": Definition(_gpu("sm_clock_max_hertz")),
    "gpu_temperature_celsius": Definition(_gpu("temperature_celsius")),
    "gpu_memory_temperature_celsius": Definition(_gpu("memory_temperature_celsius")),
    "gpu_power_watts": Definition(_gpu("power_watts")),
    "gpu_power_limit_watts": Definition(_gpu("power_limit_watts")),
    "gpu_thermal_throttle_ratio": Definition(_held("~sw_thermal|hw_thermal")),
    "gpu_power_throttle_ratio": Definition(
        _held("sw_power_cap"), note="a card at full load shows it in good health: judge by the clock"
    ),
    # hw_slowdown stands for heat as well as for a brake, so only the brake's own reason tells.
    "gpu_power_brake_ratio": Definition(_held("hw_power_brake")),
    "gpu_memory_used_bytes": Definition(_gpu("memory_used_bytes")),
    "gpu_foreign_memory_bytes": Definition(
        _gpu("foreign_memory_bytes"),
        note="owners by name, container and --own; absent without the host's PIDs",
    ),
    "gpu_foreign_sm_ratio": Definition(_gpu("foreign_sm_ratio"), note="absent under MIG"),
    "gpu_xid_code": Definition(
        _gpu("xid_last_code", "last"), note="the last one since the exporter's start, 0: none"
    ),
    "gpu_uncorrectable_ecc_errors": Definition(
        at(Gauge(_UNCORRECTED, "last"), GPU_BY), note="since the driver was loaded"
    ),
    "gpu_xid_events": Definition(
        total(Gauge(select("llmdiag_gpu_xid_total"), "last"), GPU_BY),
        note="since the exporter's start; a code's series appears with its first event",
    ),
    "gpu_remapped_rows": Definition(
        at(Gauge(select("llmdiag_gpu_remapped_rows_total", cause="uncorrectable"), "last"), GPU_BY),
        verified=False,
    ),
    "gpu_link_width_ratio": Definition(share(ratio(_gpu("pcie_link_width"), _gpu("pcie_link_width_max")))),
    "gpu_link_generation_ratio": Definition(
        share(ratio(_gpu("pcie_link_generation"), _gpu("pcie_link_generation_max"))),
        note="idle links shift down",
    ),
    "gpu_link_errors_per_second": Definition(
        added(
            total(Rate(select("llmdiag_gpu_pcie_replays_total")), GPU_BY),
            total(Rate(select("llmdiag_gpu_nvlink_errors_total")), GPU_BY),
        )
    ),
    "gpu_nvlink_active_ratio": Definition(
        share(ratio(_gpu("nvlink_links_active"), _gpu("nvlink_links"))), verified=False
    ),
    "gpu_numa_match_ratio": Definition(
        at(Gauge(select("llmdiag_engine_numa_match"), "last"), GPU_BY),
        verified=False,
        note="absent when the process may run on both sides",
    ),
}

# What request records tell, for those who keep none: the exporter's sessions read them on the fly.
_SIGNALS |= {
    "aborted_ratio": Definition(_requests("aborted")),
    "error_ratio": Definition(_requests("error")),
    "top_tenant_ratio": Definition(
        Aggregate("max", Gauge(select("llmdiag_tenant_token_share_ratio", tenant="!other"), "avg"), _BY),
        note="over the exporter's own window of minutes; which tenant it is, the share's label tells",
    ),
}

# What no engine's own page carries. Told of the engine that was asked, not of the exporter's address.
_NUMBERS = {
    "max_model_len_tokens": select("llmdiag_model_max_len_tokens"),
    "max_num_batched_tokens": select("llmdiag_engine_max_num_batched_tokens"),
    "max_num_seqs": select("llmdiag_engine_max_num_seqs"),
}

LLMDIAG = Engine(
    name="llmdiag",
    title="diag-exporter",
    probe=select("llmdiag_exporter_build_info", "llmdiag_gpu_up"),
    signals=_SIGNALS,
    labels={"engine": "instance", "instance": "instance", **GPU_LABELS},
    numbers=_NUMBERS,
)
