"""Waiting: one server's queue in a given order, and the M/M/1 wait before and after joining cards."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from diag.errors import UsageError

__all__ = ["completions", "joined_wait_ratio", "mm1_wait", "saturation_load"]


def completions(lengths: Sequence[float]) -> tuple[float, ...]:
    """When each job ends if one slot serves them in this order, in the lengths' unit."""
    return tuple(accumulate(lengths))


def mm1_wait(load: float, service: float = 1.0) -> float:
    """Mean wait before service, in the unit of ``service``.

    Raises:
        UsageError: ``load`` is not within 0 … 1: no queue is stable there.
    """
    if not 0 <= load < 1:
        raise UsageError(f"a load of {load:g} has no stable queue", hint="give 0 <= load < 1")
    return load / (1 - load) * service


def joined_wait_ratio(load: float, efficiency: float, cards: int = 2) -> float:
    """Mean wait of ``cards`` cards as one (tensor parallel), over that of as many with a queue each.

    ``load``: of each single card; ``efficiency``: what communication leaves of their joint speed. Joining
    adds no capacity: the load rises to load / efficiency, only the service gets shorter.

    Raises:
        UsageError: the joint load reaches 1.
    """
    return mm1_wait(load / efficiency, 1 / (cards * efficiency)) / mm1_wait(load)


def saturation_load(efficiency: float, growth: float = 2.0) -> float:
    """The highest load of single cards at which ``growth`` times the traffic still fits after joining."""
    return efficiency / growth
