"""Whose process is it: one that serves models here, or somebody else's?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from diag_exporter.gpu.host import Process

__all__ = ["ENGINES", "Owners"]

ENGINES = (
    r"^vllm\b",
    r"^VLLM(::|$)",
    r"^EngineCore",
    r"^ray::RayWorkerWrapper",
    r"^sglang\b",
    r"^trtllm",
    r"^tritonserver",
    r"^text-generation-(server|launcher|router)",
    r"^dynamo\b",
    r"^lmcache",
    r"^llama-server",
)
"""Titles of serving processes: how engines name their program, module or worker."""

# A cgroup of one container or one service; a login session or the root holds all sorts of programs.
_UNIT = re.compile(
    r"(/(docker|libpod|crio|cri-containerd)[-/][0-9a-f]{12,}|/kubepods.*[0-9a-f]{12,}|\.service$)"
)
_ANCESTORS = 16


class Owners:
    """Own is a process that matches a pattern, descends from one, or shares its container or service."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._engines = [re.compile(one) for one in ENGINES]
        self._patterns = [re.compile(one) for one in patterns]

    def named(self, process: Process) -> bool:
        """Whether the process is own by its name, command line or cgroup."""
        return any(one.search(process.title) for one in self._engines) or any(
            one.search(text)
            for one in self._patterns
            for text in (process.title, process.command, process.cgroup)
        )

    def own(self, processes: Mapping[int, Process], look: Callable[[int], Process | None]) -> set[int]:
        """Pids among ``processes`` that are own. ``look`` finds their ancestors."""
        own = {pid for pid, one in processes.items() if self._descends(one, look)}
        units = {processes[pid].cgroup for pid in own if _UNIT.search(processes[pid].cgroup)}
        return own | {pid for pid, one in processes.items() if one.cgroup in units}

    def _descends(self, process: Process, look: Callable[[int], Process | None]) -> bool:
        current: Process | None = process
        for _ in range(_ANCESTORS):
            if current is None or self.named(current):
                return current is not None
            current = look(current.parent) if current.parent else None
        return False
