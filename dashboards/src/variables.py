"""The variables of every board. An engine's own address is ``instance``; exporters of GPUs and hosts
have others, so theirs is ``host``."""

from __future__ import annotations

from dataclasses import dataclass

from diag.engines import engine
from diag.signals.algebra import spellings

__all__ = ["VARIABLES", "Variable"]


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable that lists a label's values: its name, its label in the page, what it asks."""

    name: str
    label: str
    query: str
    description: str


def _probe(*producers: str) -> str:
    names = [
        spelling
        for producer in producers
        for name in engine(producer).probe.names
        for spelling in spellings(name)
    ]
    return f'__name__=~"{"|".join(names)}"'


_ENGINES = _probe("vllm", "sglang")
_MACHINES = _probe("llmdiag", "dcgm", "nvidia_gpu_exporter", "node")

VARIABLES: tuple[Variable, ...] = (
    Variable("cluster", "cluster", "label_values(up, cluster)", "Empty where targets bear no such label."),
    Variable(
        "job",
        "job",
        f'label_values({{{_ENGINES},cluster=~"$cluster"}}, job)',
        "Scrape jobs that serve models.",
    ),
    Variable(
        "instance",
        "engine",
        f'label_values({{{_ENGINES},cluster=~"$cluster",job=~"$job"}}, instance)',
        "Engine instances, one line each.",
    ),
    Variable(
        "model",
        "model",
        f'label_values({{{_ENGINES},cluster=~"$cluster",job=~"$job",instance=~"$instance"}}, model_name)',
        "Models by the name they are served under.",
    ),
    Variable(
        "host",
        "GPU or host exporter",
        f'label_values({{{_MACHINES},cluster=~"$cluster"}}, instance)',
        "Exporters of GPUs and hosts: their addresses are not the engines'.",
    ),
)
"""In the order of the page; each is narrowed by those before it."""
