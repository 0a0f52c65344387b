"""What the GPU collectors are told from outside."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["GpuOptions", "Profile"]

Profile = Literal["minimal", "default", "full"]


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """``own``: regular expressions searched in a process' title, command line and cgroup path, beside the
    engines known by name. ``top_n``: processes named per GPU, the rest is ``other``. ``expected``: GPUs
    this machine should have (None: as many as were ever seen). ``profile`` minimal: clocks, thermals,
    power, usage, Xids; default: every topic; full: details too. ``without``: topics switched off.
    ``root``: where /proc and /sys of the host are. ``on_restart`` is told why when only a new process
    helps (called in the sampling thread)."""

    own: tuple[str, ...] = ()
    top_n: int = 10
    expected: int | None = None
    profile: Profile = "default"
    without: frozenset[str] = frozenset()
    root: Path = Path("/")
    on_restart: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        for pattern in self.own:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"--own {pattern!r} is no regular expression: {error}") from None
        if self.top_n < 1:
            raise ValueError(f"top_n must be 1 or more, not {self.top_n}")
        if self.expected is not None and self.expected < 0:
            raise ValueError(f"expected GPUs must be 0 or more, not {self.expected}")
