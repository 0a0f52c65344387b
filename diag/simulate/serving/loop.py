"""Simulated time: things that happen, in order."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

__all__ = ["Loop"]


class Loop:
    """Calls what was asked for when its time comes; ties in the order of asking. ``now``: seconds since the
    window's start, negative before it."""

    __slots__ = ("_asked", "_heap", "now")

    def __init__(self, start: float) -> None:
        self.now = start
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._asked = 0

    def at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        """``call(*arguments)`` at ``time``, at once if that has passed."""
        self._asked += 1
        heappush(self._heap, (time if time > self.now else self.now, self._asked, call, arguments))

    def run(self, end: float) -> None:
        """Everything up to ``end``."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, call, arguments = heappop(heap)
            call(*arguments)
        self.now = end
