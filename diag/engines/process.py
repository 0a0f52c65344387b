"""What a scraper and any program with a Prometheus client say of themselves.

``up`` and ``scrape_duration_seconds`` are written by the store for every target. ``process_*`` comes
from every client library; engines and exporters are left out here, so that what remains is the chat
backend, the gateway and their like.
"""

from __future__ import annotations

from diag.engines.combine import ENGINE_BY, at
from diag.engines.registry import Absent, Definition, Engine
from diag.signals.algebra import FirstOf, Gauge, Unless, select, total

__all__ = ["PROCESS"]

_TARGET_BY = ("instance", "job", "pod", "node", "namespace")
_KNOWN = FirstOf(
    tuple(
        at(Gauge(select(name)), ENGINE_BY)
        for name in (
            "vllm:num_requests_running",
            "sglang:num_running_reqs",
            "node_load1",
            "nvidia_smi_utilization_gpu_ratio",
            "DCGM_FI_DEV_GPU_UTIL",
            "llmdiag_exporter_build_info",
        )
    )
)

_SIGNALS: dict[str, Definition | Absent] = {
    "target_up": Definition(at(Gauge(select("up"), "avg"), _TARGET_BY), note="share of scrapes that came"),
    "scrape_seconds": Definition(
        at(Gauge(select("scrape_duration_seconds"), "max"), _TARGET_BY), note="the longest in the window"
    ),
    "process_resident_memory_bytes": Definition(
        Unless(total(Gauge(select("process_resident_memory_bytes")), ENGINE_BY), _KNOWN),
        note="engines and exporters left out",
    ),
}

PROCESS = Engine(
    name="process",
    title="scrape targets and other processes",
    probe=select("up", "process_resident_memory_bytes"),
    signals=_SIGNALS,
)
