"""What a child process cost, from the kernel's own account of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Cost", "cost_of", "diag"]


@dataclass(frozen=True, slots=True)
class Cost:
    """``cpu_seconds`` is user plus system time, ``peak_bytes`` the largest resident size."""

    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int
    output: str


def diag(*arguments: str) -> list[str]:
    """The command line of ``diag`` in this interpreter."""
    return [sys.executable, "-m", "diag", *arguments]


def cost_of(command: Sequence[str], repeat: int = 1) -> Cost:
    """Run ``command`` ``repeat`` times, each in a process of its own; return the cheapest run.

    The cheapest, since whatever else the machine does can only add. Raise ``RuntimeError`` when it fails.
    """
    return min((_once(command) for _ in range(repeat)), key=lambda cost: cost.cpu_seconds)


def _once(command: Sequence[str]) -> Cost:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=errors)
        # wait4 tells the usage of this child alone; RUSAGE_CHILDREN would keep the largest of all so far.
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        if child.returncode != 0:
            said = errors.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(command)} failed: {said}")
        return Cost(
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            wall_seconds=wall,
            peak_bytes=usage.ru_maxrss * 1024,
            output=out.read().decode(errors="replace"),
        )
