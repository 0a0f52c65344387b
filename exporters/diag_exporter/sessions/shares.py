"""Who uses how much, of any number of names in bounded memory."""

from __future__ import annotations

from collections import deque
from heapq import heappush, heapreplace

__all__ = ["HeavyHitters", "WindowedShares"]


class HeavyHitters:
    """Weighted space-saving: at most ``capacity`` names are held; a name that is not held weighs at
    most as much as the lightest one that is. Weights are never too small, and too large by at most
    total / capacity."""

    __slots__ = ("_capacity", "_heap", "_weights", "total")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._weights: dict[str, float] = {}
        # One entry a name; its weight may lag behind until the name stands at the front.
        self._heap: list[tuple[float, str]] = []
        self.total = 0.0

    def __len__(self) -> int:
        return len(self._weights)

    def add(self, name: str, weight: float) -> None:
        """Count ``weight`` for ``name``."""
        self.total += weight
        weights = self._weights
        if name in weights:
            weights[name] += weight
        elif len(weights) < self._capacity:
            weights[name] = weight
            heappush(self._heap, (weight, name))
        else:
            self._replace_lightest(name, weight)

    def _replace_lightest(self, name: str, weight: float) -> None:
        heap, weights = self._heap, self._weights
        while True:
            noted, lightest = heap[0]
            actual = weights[lightest]
            if actual == noted:
                break
            heapreplace(heap, (actual, lightest))
        del weights[lightest]
        # The newcomer inherits the weight that may have been its own while nobody looked.
        weights[name] = noted + weight
        heapreplace(heap, (noted + weight, name))

    def items(self) -> dict[str, float]:
        """A copy of the weights."""
        return dict(self._weights)


class WindowedShares:
    """Shares over the last ``slots`` × ``slot_seconds``, at the resolution of one slot."""

    def __init__(self, *, slots: int = 10, slot_seconds: float = 30.0, capacity: int = 1000) -> None:
        self._seconds = slot_seconds
        self._capacity = capacity
        self._slots: deque[HeavyHitters] = deque([HeavyHitters(capacity)], maxlen=slots)
        self._current = self._slots[-1]
        self._ends: float | None = None

    def add(self, name: str, weight: float) -> None:
        """Count into the newest slot; ``turn`` keeps that one young."""
        self._current.add(name, weight)

    def turn(self, now: float) -> None:
        """Open new slots as time goes by. ``now``: seconds of a clock that never jumps."""
        if self._ends is None:
            self._ends = now + self._seconds
        behind = int((now - self._ends) // self._seconds) + 1
        if behind <= 0:
            return
        for _ in range(min(behind, self._slots.maxlen or 1)):
            self._slots.append(HeavyHitters(self._capacity))
        self._current = self._slots[-1]
        self._ends += behind * self._seconds

    def weights(self) -> tuple[dict[str, float], float]:
        """Weight by name, and the weight of all, over the window."""
        merged: dict[str, float] = {}
        for slot in self._slots:
            for name, weight in slot.items().items():
                merged[name] = merged.get(name, 0.0) + weight
        return merged, sum(slot.total for slot in self._slots)
