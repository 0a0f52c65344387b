"""What a room must offer, whoever writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from diag.detectors.cues import Explained, Named, Reach
from diag.detectors.view import View
from diag.model import Card, Evidence, Missing

__all__ = ["Hypothesis", "Output"]

Output = Evidence | Missing | Explained | Named | Reach


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """``needs``: groups of signals; of each group at least one must be there, or nothing can be said.

    ``examine`` yields what it sees and never ranks, formats for an output, fetches, or knows an
    engine. ``trigger`` is False for states that may last for ever and only amplify (caching off)."""

    card: Card
    needs: tuple[tuple[str, ...], ...]
    examine: Callable[[View], Iterator[Output]]
    trigger: bool = True
