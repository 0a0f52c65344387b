"""Panels of the host under engines and cards."""

from __future__ import annotations

from dashboards.src.limits import line
from dashboards.src.model import Panel
from dashboards.src.queries import HOST, of, raw
from diag.assets.rules import thresholds as t

__all__ = ["CPU_PRESSURE", "FAULTS", "HOST_PANELS", "MEMORY", "PROCESSES", "RETRANSMITS"]

CPU_PRESSURE = Panel(
    "Tasks that wait for a CPU",
    "Share of time in which some task waited (pressure stall information). It tells more than use: an engine's "
    "worker that waits busily always fills its core.",
    "percentunit",
    of("node_cpu_pressure_ratio"),
    maximum=1.0,
    runbooks=("host_cpu_starvation",),
    limits=(line("LLMHostCPUStarved", t.CPU_PRESSURE),),
    drill="gpu",
    variable="host",
)
MEMORY = Panel(
    "Memory available",
    "Share of the host's memory that can be had without swapping.",
    "percentunit",
    of("node_memory_available_ratio"),
    maximum=1.0,
    runbooks=("host_memory_leak",),
    limits=(
        line("LLMHostMemoryExhausted", t.MEMORY_OUT),
        line("LLMHostMemoryExhausted", t.MEMORY_LOW),
    ),
    drill="gpu",
    variable="host",
)
PROCESSES = Panel(
    "Resident memory of processes",
    "Engines, chat backends, gateways: whoever exports it. A slope that no restart breaks is a leak.",
    "bytes",
    (*of("engine_resident_memory_bytes", "engine"), *of("process_resident_memory_bytes")),
    runbooks=("host_memory_leak", "runtime_pauses"),
    alerts=("LLMProcessMemoryGrowing",),
    limits=(line("LLMProcessMemoryGrowing", t.MEMORY_LARGE),),
)
RETRANSMITS = Panel(
    "TCP segments sent again",
    "Share of those sent. It says nothing of RDMA traffic, and much of the way between gateway and engine.",
    "percentunit",
    of("node_tcp_retransmit_ratio"),
    width=12,
    runbooks=("network_latency",),
    limits=(line("LLMHostRetransmits", t.RETRANSMITTED),),
    drill="fabric",
    variable="host",
)
_CPU = Panel(
    "CPU use",
    "Share of CPU time not idle, and in user mode without niced work.",
    "percentunit",
    (*of("node_cpu_busy_ratio", "busy"), *of("node_cpu_user_ratio", "user")),
    dashed="user",
    maximum=1.0,
    runbooks=("host_cpu_starvation",),
    drill="gpu",
    variable="host",
)
_QUOTA = Panel(
    "Containers throttled",
    "Share of scheduling periods in which a container had used up its CPU limit.",
    "percentunit",
    of("container_cpu_throttled_ratio"),
    maximum=1.0,
    runbooks=("host_cpu_starvation",),
    drill="gpu",
    variable="host",
)
_STALLS = Panel(
    "Tasks that wait for memory or disk",
    "Share of time in which some task waited for memory to be reclaimed, or for IO.",
    "percentunit",
    (*of("node_memory_pressure_ratio", "memory"), *of("node_io_pressure_ratio", "disk")),
    dashed="disk",
    maximum=1.0,
    runbooks=("host_memory_leak", "runtime_pauses"),
    drill="gpu",
    variable="host",
)
FAULTS = Panel(
    "Major faults and kills",
    "Pages read back from disk a second, and processes killed for memory a second.",
    "cps",
    (*of("node_major_faults_per_second", "faults"), *of("node_oom_kills_per_second", "kills")),
    dashed="kills",
    runbooks=("host_memory_leak",),
    alerts=("LLMHostOOMKill",),
    drill="gpu",
    variable="host",
)
_NEAR = Panel(
    "Serving process near its GPU",
    "1 if it may run only on CPUs of the GPU's NUMA node, 0 if only on others. Demand an effect before you move "
    "anything: it is often small.",
    "short",
    (raw(f"llmdiag_engine_numa_match{{{HOST}}}", "{{instance}} GPU {{gpu}}", "llmdiag"),),
    maximum=1.0,
    runbooks=("numa_misplacement",),
    alerts=("LLMEngineNumaMismatch",),
    drill="gpu",
    variable="host",
)
_FAR = Panel(
    "Memory taken from another node",
    "Share of allocations by processes that run on another NUMA node.",
    "percentunit",
    of("node_numa_remote_ratio"),
    maximum=1.0,
    runbooks=("numa_misplacement",),
    drill="gpu",
    variable="host",
)

HOST_PANELS = (CPU_PRESSURE, MEMORY, PROCESSES, _CPU, _QUOTA, _STALLS, FAULTS, _NEAR, _FAR)
"""All of them, for a row of their own."""
