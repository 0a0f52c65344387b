"""rules/alerts/host.yml: the host under the engine. Trouble mostly lasts from minute 20 to 60."""

from __future__ import annotations

from tests.rules.cases.case import Case, Fires, Told, counter, gauge, silent
from tests.rules.cases.engines import V1, written

__all__ = ["CASES", "LONG"]


def _told(alert: str, summary: str, runbook: str, look_back: str = "2h", severity: str = "warning") -> Told:
    return Told(
        alert,
        severity,
        "host",
        summary,
        runbook,
        "incident",
        ("instance",),
        look_back,
        variables={"instance": "host"},
    )


_OUT = _told("LLMHostMemoryExhausted", "A host runs out of memory.", "host_memory_leak", "6h")
_KILLED = _told("LLMHostOOMKill", "The kernel killed a process for memory.", "host_memory_leak", "6h")
_GROWS = _told(
    "LLMProcessMemoryGrowing", "The memory of a serving process only grows.", "host_memory_leak", "12h"
)
_STARVED = _told(
    "LLMHostCPUStarved", "Tasks on a host wait for a CPU.", "host_cpu_starvation", severity="info"
)
_AGAIN = _told("LLMHostRetransmits", "A host sends many network segments again.", "network_latency")

_NODE = {"instance": "n:9100", "job": "node"}
_NODE_SEEN = {**_NODE, "producer": "node"}


def _node(name: str, **more: str) -> str:
    return written(f"node_{name}", {**_NODE, **more})


def _available(values: str) -> dict[str, str]:
    """Percent of the memory, a minute."""
    return {_node("memory_MemAvailable_bytes"): values, _node("memory_MemTotal_bytes"): "100x90"}


def _left(share: str) -> Fires:
    return Fires(_NODE_SEEN, f"n:9100 has {share} of its memory left, or will have none within an hour.")


def _trouble(growth: float, calm: float = 0.0) -> str:
    return counter((20, calm), (40, growth), (30, calm))


def _waits(pressure: float, user: float) -> dict[str, str]:
    """Seconds a minute that some task waits, and that one CPU spends on programs."""
    return {
        _node("pressure_cpu_waiting_seconds_total"): _trouble(pressure),
        _node("cpu_seconds_total", cpu="0", mode="user"): counter((90, user)),
        _node("cpu_seconds_total", cpu="0", mode="idle"): counter((90, 60 - user)),
    }


def _segments(again: float) -> dict[str, str]:
    return {
        _node("netstat_Tcp_RetransSegs"): _trouble(again),
        _node("netstat_Tcp_OutSegs"): counter((90, 100)),
    }


_KILL = Fires(_NODE_SEEN, "A process on n:9100 was killed for memory within the last five minutes.")

CASES = (
    Case(_OUT, "four percent", _available(gauge((60, 4), (30, 50))), silent=(4, 60), fires={5: [_left("4%")]}),
    silent(_OUT, "eight percent and steady", _available("8x90"), 6, 60),
    silent(_OUT, "fifteen percent and steady", _available("15x90"), 6, 60),
    # 34 - 0.4 t falls below 20 at 36, and an hour later would be 24 lower.
    Case(_OUT, "gone within an hour", _available("34-0.4x60"), silent=(20, 40), fires={41: [_left("17.6%")]}),
    # 24 - 0.25 t: below 20 from 17 on, and an hour later 15 lower.
    silent(_OUT, "gone within two hours", _available("24-0.25x60"), 25, 30),
    # The rise lies within five minutes until 24, and the alert is kept for a quarter of an hour.
    Case(_KILLED, "one", {_node("vmstat_oom_kill"): "0x19 1x60"}, silent=(19, 40), fires={20: [_KILL], 39: [_KILL]}),
    Case(
        _STARVED, "tasks wait", _waits(27, 51), silent=(19, 28, 62),
        fires={29: [Fires(
            _NODE_SEEN,
            "On n:9100 some task waits for a CPU 45% of the time; schedulers and tokenisers of engines are among them.",
        )]},
    ),
    silent(_STARVED, "they wait a little", _waits(12, 51), 29, 55),
    silent(_STARVED, "they wait while CPUs are free: a quota", _waits(27, 30), 29, 55),
    Case(
        _AGAIN, "eight in a hundred", _segments(8), silent=(19, 33, 62),
        fires={34: [Fires(_NODE_SEEN, "n:9100 repeats 8% of its TCP segments.")]},
    ),
    silent(_AGAIN, "three in a hundred", _segments(3), 34, 55),
)  # fmt: skip
"""Every case of this file that is sampled every minute."""


def _resident(labels: dict[str, str], usual: float, growth: float, *, steady: bool = False) -> dict[str, str]:
    """400 minutes as usual; then it grows every five minutes, or has grown at once; a restart at 650."""
    later = f"{usual + 30 * growth:.10g}x49" if steady else f"{usual:.10g}+{growth:.10g}x49"
    return {written("process_resident_memory_bytes", labels): f"{usual:.10g}x79 {later} {usual:.10g}x20"}


def _holds(instance: str, job: str, producer: str) -> Fires:
    return Fires(
        {"instance": instance, "job": job, "producer": producer},
        f"The process at {instance} holds 2.887GiB, half again as much as six hours ago, and goes on growing.",
    )


_CHAT = {"instance": "c:8080", "job": "chat"}
_ENGINE = {"instance": "a:8000", "job": "vllm"}
# 1.9e9 + 4e7 n is half again as much with n = 24, at 520; at 550 it is 3.1e9.
LONG = (
    Case(
        _GROWS, "a chat backend", _resident(_CHAT, 1.9e9, 4e7), silent=(400, 545, 650),
        fires={550: [_holds("c:8080", "chat", "process")]}, every=5,
    ),
    Case(
        _GROWS, "an engine",
        {**_resident(_ENGINE, 1.9e9, 4e7), V1.series("num_requests_running"): "1x150"}, silent=(400, 545, 650),
        fires={550: [_holds("a:8000", "vllm", "vllm")]}, every=5,
    ),
    *(
        silent(_GROWS, f"{what}, {who}", {**_resident(labels, usual, growth, steady=steady), **more}, 550, 640, every=5)
        for who, labels, more in (
            ("a chat backend", _CHAT, {}),
            ("an engine", _ENGINE, {V1.series("num_requests_running"): "1x150"}),
        )
        for what, usual, growth, steady in (
            ("small", 0.8e9, 1.7e7, False),
            ("a fifth more", 3e9, 1.2e7, False),
            ("grown once, steady since", 1.9e9, 4e7, True),
        )
    ),
)  # fmt: skip
"""Those over hours, sampled every five minutes."""
