"""Lines that say something went wrong, as events."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from diag.model import Event

__all__ = ["merged", "trouble"]

_TEXT_CHARS_MAX = 200
_MERGED_SECONDS = 10.0

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([^)\s]+)\): (\d+)(?:, ?(.*))?")
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("preemption", re.compile(r"is preempted by PreemptionMode|\bPreemptions: [1-9]|#retracted_reqs: [1-9]")),
    ("bind_failure", re.compile(r"address already in use|\[Errno 98\]", re.IGNORECASE)),
    ("oom_kill", re.compile(r"Out of memory: Killed process|oom-kill:|Memory cgroup out of memory")),
    ("kv_load_failure", re.compile(
        r"KV load failure|Releasing expired KV blocks|Failed to retrieve segment descriptor"
        r"|Couldn't find the requested block in the reuse tree"
    )),
    ("abort", re.compile(r"Aborted request|\bRequest \S+ aborted\b")),
    ("link_error", re.compile(r"NCCL WARN NET/IB : \S+ Got async error event: port error")),
    (
        "engine_error",
        re.compile(
            r"EngineCore encountered a fatal error|EngineDeadError|AsyncEngineDeadError"
            r"|No available shared memory broadcast block|CUDA out of memory|CUDA error: "
            r"|Engine core proc \S+ died unexpectedly|Scheduler hit an exception|Watchdog timeout"
            r"|WorkerProc hit an exception|RPC call to \w+ timed out"
        ),
    ),
)  # fmt: skip
_KEYWORDS = re.compile(
    "reempt|retracted_reqs|ddress|Errno|memory|oom-kill|KV |[Aa]borted|Engine"
    "|CUDA error|hit an exception|Watchdog|NVRM|NCCL WARN|segment descriptor|reuse tree|RPC call"
)


def trouble(time: float, text: str, target: str) -> Event | None:
    """The event that ``text`` tells of, or None. ``target`` is the component (the PCI address for
    an Xid); ``kind`` is one of preemption, xid, bind_failure, oom_kill, engine_error,
    kv_load_failure, abort, link_error (a port of InfiniBand or RoCE as NCCL saw it)."""
    if not _KEYWORDS.search(text):
        return None
    if match := _XID.search(text):
        detail = f": {match[3].strip()}" if match[3] else ""
        return Event(time, "xid", match[1], f"Xid {match[2]}{detail}"[:_TEXT_CHARS_MAX], marked=False)
    for kind, pattern in _PATTERNS:
        if pattern.search(text):
            return Event(time, kind, target, _short(text), marked=False)
    return None


def _short(text: str) -> str:
    # The source position in front changes from release to release and tells an operator nothing.
    plain = re.sub(r"^\s*(?:\[[\w./-]+:\d+\]|[\w./-]+:\d+\])\s*", "", text).strip()
    return plain if len(plain) <= _TEXT_CHARS_MAX else plain[: _TEXT_CHARS_MAX - 1] + "…"


def merged(events: Iterable[Event]) -> list[Event]:
    """By time, a run of like events (ten seconds from one to the next) told once, with its length."""
    runs: list[list[Event]] = []
    latest: dict[tuple[str, str], list[Event]] = {}
    for event in sorted(events, key=lambda item: item.time):
        key = (event.kind, event.target) if event.kind != "xid" else (event.text[:8], event.target)
        run = latest.get(key)
        if run is not None and event.time - run[-1].time <= _MERGED_SECONDS:
            run.append(event)
        else:
            latest[key] = [event]
            runs.append(latest[key])
    return [
        run[0] if len(run) == 1 else replace(run[0], text=f"{run[0].text} ({len(run)} such lines)")
        for run in runs
    ]
