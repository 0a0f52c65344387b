"""The host under the engine, and the programs beside it."""

from __future__ import annotations

from diag.assets.rules import thresholds as t
from diag.assets.rules.model import Alert, RuleFile, all_of, any_of

__all__ = ["HOST"]

_NODE = ("node",)

_MEMORY = Alert(
    name="LLMHostMemoryExhausted",
    expr=any_of(
        f"host:memory_available_ratio < {t.MEMORY_OUT}",
        f"(host:memory_available_ratio < {t.MEMORY_LOW}"
        " and predict_linear(host:memory_available_ratio[1h], 3600) < 0)",
    ),
    severity="warning",
    component="host",
    summary="A host runs out of memory.",
    description=(
        "{{ $labels.instance }} has {{ $value | humanizePercentage }} of its memory left, or will have none "
        "within an hour."
    ),
    runbook="host_memory_leak",
    dashboard="incident",
    needs=_NODE,
    causes=("host_memory_leak",),
    thresholds=(t.MEMORY_OUT, t.MEMORY_LOW),
    for_seconds=300,
    look_back="6h",
)

_OOM = Alert(
    name="LLMHostOOMKill",
    expr="host:oom_kills_per_second > 0",
    severity="warning",
    component="host",
    summary="The kernel killed a process for memory.",
    description="A process on {{ $labels.instance }} was killed for memory within the last five minutes.",
    runbook="host_memory_leak",
    dashboard="incident",
    needs=_NODE,
    causes=("host_memory_leak", "engine_restart"),
    keep_firing_seconds=900,
    look_back="6h",
)


def _grown(name: str) -> str:
    return all_of(
        f"{name} > {t.MEMORY_GROWN} * {name} offset 6h",
        f"{name} > {t.MEMORY_LARGE}",
        f"deriv({name}[1h]) > 0",
    )


_GROWN = Alert(
    name="LLMProcessMemoryGrowing",
    expr=any_of(_grown("host:process_resident_memory_bytes"), _grown("llm:engine_resident_memory_bytes")),
    severity="warning",
    component="host",
    summary="The memory of a serving process only grows.",
    description=(
        "The process at {{ $labels.instance }} holds {{ $value | humanize1024 }}B, half again as much as six "
        "hours ago, and goes on growing."
    ),
    runbook="host_memory_leak",
    dashboard="incident",
    needs=("process|vllm|sglang",),
    causes=("host_memory_leak",),
    thresholds=(t.MEMORY_GROWN, t.MEMORY_LARGE),
    for_seconds=1800,
    look_back="12h",
)

_CPU = Alert(
    name="LLMHostCPUStarved",
    expr=all_of(f"host:cpu_pressure_ratio > {t.CPU_PRESSURE}", f"host:cpu_user_ratio > {t.CPU_USER}"),
    severity="info",
    component="host",
    summary="Tasks on a host wait for a CPU.",
    description=(
        "On {{ $labels.instance }} some task waits for a CPU {{ $value | humanizePercentage }} of the time; "
        "schedulers and tokenisers of engines are among them."
    ),
    runbook="host_cpu_starvation",
    dashboard="incident",
    needs=_NODE,
    causes=("host_cpu_starvation", "noisy_neighbour", "grammar_stall"),
    thresholds=(t.CPU_PRESSURE, t.CPU_USER),
    for_seconds=300,
    comment="Where engines compute on CPUs it tells nothing: they are meant to be busy.",
)

_NETWORK = Alert(
    name="LLMHostRetransmits",
    expr=f"host:tcp_retransmit_ratio > {t.RETRANSMITTED}",
    severity="warning",
    component="host",
    summary="A host sends many network segments again.",
    description="{{ $labels.instance }} repeats {{ $value | humanizePercentage }} of its TCP segments.",
    runbook="network_latency",
    dashboard="incident",
    needs=_NODE,
    causes=("network_latency",),
    thresholds=(t.RETRANSMITTED,),
    for_seconds=600,
)

HOST = RuleFile(
    path="alerts/host.yml",
    title="The host under the engine",
    text="For the hosts of engines, gateways and chat backends; on others it tells little about LLMs.",
    needs=("node|process",),
    alerts=(_MEMORY, _OOM, _GROWN, _CPU, _NETWORK),
)
