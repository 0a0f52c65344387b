"""The engine's process on this host: its command line and when it began (Linux's /proc).

The last resort for settings that no endpoint tells. Of a command line only known settings are taken:
it may hold keys.
"""

from __future__ import annotations

import os
from pathlib import Path

from diag_exporter.engine.facts import Facts, from_settings, merged

__all__ = ["find_listener", "flags_of", "process_facts"]

_LISTEN = "0A"
_FLAGS = frozenset((
    "max-num-seqs", "max-num-batched-tokens", "max-model-len", "enable-prefix-caching", "block-size",
    "kv-cache-dtype", "max-running-requests", "chunked-prefill-size", "context-length",
    "disable-radix-cache", "page-size",
))  # fmt: skip
_SWITCHES = frozenset(("enable-prefix-caching", "disable-radix-cache"))


def find_listener(port: int, proc: Path = Path("/proc")) -> int | None:
    """The process that listens on ``port`` of this host (and namespace); None when it cannot be told,
    also for want of rights."""
    wanted = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    if not wanted:
        return None
    for entry in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            with os.scandir(entry / "fd") as held:
                if any(os.readlink(one.path) in wanted for one in held):
                    return int(entry.name)
        except OSError:
            continue
    return None


def _listening(port: int, proc: Path) -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text("ascii", "replace").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                inodes.add(words[9])
    return inodes


def process_facts(pid: int, proc: Path = Path("/proc")) -> Facts:
    """Facts of process ``pid``; empty when it is gone."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        started = _start_time(pid, proc)
    except (OSError, ValueError, IndexError):
        return Facts()
    whole = " ".join(words)
    producer = "sglang" if "sglang" in whole else "vllm" if "vllm" in whole else ""
    return merged((Facts(producer=producer, start_time=started), from_settings(flags_of(words))))


def flags_of(words: list[str]) -> dict[str, object]:
    """Known settings of a command line, by their names in Python."""
    held: dict[str, object] = {}
    for position, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")
        if name.removeprefix("no-") in _SWITCHES and not equals:
            held[name.removeprefix("no-").replace("-", "_")] = not name.startswith("no-")
        elif name in _FLAGS:
            after = words[position + 1] if position + 1 < len(words) else ""
            held[name.replace("-", "_")] = _scaled(value if equals else after)
    return held


def _scaled(value: str) -> object:
    """vLLM also takes ``8k`` (thousands) and ``8K`` (1,024s) for lengths."""
    scale = {"k": 1000, "m": 10**6, "K": 1 << 10, "M": 1 << 20}.get(value[-1:], 0)
    try:
        return int(float(value[:-1]) * scale) if scale else value
    except (ValueError, OverflowError):
        return value


def _start_time(pid: int, proc: Path) -> float:
    # Behind the name, which may itself hold blanks and brackets: field 22 counts from the front.
    after_name = (proc / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    ticks = int(after_name[19])
    for line in (proc / "stat").read_text("ascii", "replace").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    raise ValueError("no boot time")
