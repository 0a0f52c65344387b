"""The producers of metrics we know, one file each. Adding one: write the file, name it here."""

from __future__ import annotations

from diag.engines.dcgm import DCGM
from diag.engines.kubernetes import KUBERNETES
from diag.engines.llmdiag import LLMDIAG
from diag.engines.node import NODE
from diag.engines.nvidia_gpu_exporter import NVIDIA_GPU_EXPORTER
from diag.engines.process import PROCESS
from diag.engines.registry import Absent, Definition, Engine, canonical
from diag.engines.sglang import SGLANG
from diag.engines.vllm import VLLM
from diag.errors import SignalError

__all__ = ["ENGINES", "Absent", "Definition", "Engine", "canonical", "engine"]

ENGINES: tuple[Engine, ...] = (
    VLLM, SGLANG, LLMDIAG, DCGM, NVIDIA_GPU_EXPORTER, NODE, KUBERNETES, PROCESS,
)  # fmt: skip


def engine(name: str) -> Engine:
    """Return the engine file called ``name``; raise ``SignalError`` if there is none."""
    for candidate in ENGINES:
        if candidate.name == name:
            return candidate
    known = ", ".join(candidate.name for candidate in ENGINES)
    raise SignalError(f"no engine file is called {name!r}", hint=f"there are {known}")
