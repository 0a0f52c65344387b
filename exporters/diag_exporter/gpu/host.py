"""What the host knows of processes and of where a GPU sits: /proc and /sys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Host", "Process", "parse_cpus", "title"]

_PYTHON = re.compile(r"^(python|pypy)[\d.]*$")
_MOST_LETTERS = 48


@dataclass(frozen=True, slots=True)
class Process:
    """``title``: what it is, short and without arguments; ``command``: the whole command line, for
    matching only, never exported; ``cgroup``: path; ``parent``: pid."""

    pid: int
    title: str
    command: str
    cgroup: str
    parent: int


class Host:
    """Reads below ``root``, where the host's /proc and /sys are."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._devices = root / "sys" / "bus" / "pci" / "devices"
        self._nodes = root / "sys" / "devices" / "system" / "node"

    def process(self, pid: int) -> Process | None:
        """A process, or None if there is none (any more, or in our PID namespace)."""
        folder = self._proc / str(pid)
        stat = _text(folder / "stat")
        # The name in brackets may hold brackets and blanks: what follows the last one is fixed.
        name, closed, rest = stat.partition("(")[2].rpartition(")")
        numbers = rest.split()
        if not closed or len(numbers) < 2 or not numbers[1].isdigit():
            return None
        words = [one for one in _text(folder / "cmdline").split("\0") if one]
        cgroups = _text(folder / "cgroup").splitlines()
        return Process(
            pid=pid,
            title=title(words, name),
            command=" ".join(words),
            cgroup=max((line.split(":", 2)[-1] for line in cgroups), key=len, default=""),
            parent=int(numbers[1]),
        )

    def allowed_cpus(self, pid: int) -> frozenset[int] | None:
        """CPUs the process may run on; None: not told."""
        found = re.search(r"^Cpus_allowed_list:\s*(\S+)", _text(self._proc / str(pid) / "status"), re.M)
        return parse_cpus(found.group(1)) if found else None

    def gpu_node(self, bus: str) -> int | None:
        """NUMA node of a PCI device; None: the firmware does not tell."""
        text = _text(self._devices / _device(bus) / "numa_node").strip()
        # -1 is no node: common in virtual machines and on hosts with one node.
        return int(text) if text.isdigit() else None

    def local_cpus(self, bus: str) -> frozenset[int] | None:
        """CPUs near a PCI device; None: not told."""
        return parse_cpus(_text(self._devices / _device(bus) / "local_cpulist"))

    def node_of_cpus(self, cpus: frozenset[int]) -> int | None:
        """The NUMA node that has all these CPUs; None: several, or not told."""
        for folder in self._nodes.glob("node[0-9]*"):
            of_node = parse_cpus(_text(folder / "cpulist"))
            if of_node and cpus <= of_node:
                return int(folder.name[4:])
        return None


def title(words: list[str], name: str) -> str:
    """What a command line runs: the program, or for an interpreter the script or module.

    Arguments may hold paths, keys and prompts, so none of them is ever part of it.
    """
    if not words:
        return _clean(name)
    # A program that renames itself (VLLM::EngineCore, nginx: worker) puts a sentence where its path was.
    program = words[0].rstrip()
    program = program.rsplit("/", 1)[-1] if program.startswith(("/", "./")) else program.split(" ", 1)[0]
    if not _PYTHON.match(program):
        return _clean(program)
    for position, word in enumerate(words[1:], 1):
        if word == "-m" and position + 1 < len(words):
            return _clean(words[position + 1])
        if word == "-c":
            break
        if not word.startswith("-"):
            return _clean(word.rsplit("/", 1)[-1])
    return _clean(program)


def parse_cpus(text: str) -> frozenset[int] | None:
    """A kernel CPU list such as ``0-3,8``; None for an empty or odd one."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return None
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def _device(bus: str) -> str:
    # NVML writes domains with eight digits, the kernel with four.
    return re.sub(r"^0000(?=[0-9a-f]{4}:)", "", bus.lower())


def _clean(text: str) -> str:
    kept = "".join(one if one.isprintable() else "?" for one in text.strip())
    return kept[:_MOST_LETTERS] or "unknown"


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
