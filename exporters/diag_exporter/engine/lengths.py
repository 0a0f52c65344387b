"""What engines said they serve, and how long a context it takes; the sessions part asks here."""

from __future__ import annotations

import threading

__all__ = ["learn_max_length", "max_length", "only_model"]

_lock = threading.Lock()
_known: dict[str, dict[str, int]] = {}


def learn_max_length(engine: str, lengths: dict[str, int]) -> None:
    """What ``engine`` serves now: tokens by model name. An empty dict forgets the engine."""
    with _lock:
        if lengths:
            _known[engine] = dict(lengths)
        else:
            _known.pop(engine, None)


def max_length(model: str) -> int | None:
    """The longest context that any engine takes for ``model``, in tokens; None where nobody knows."""
    with _lock:
        return max((held[model] for held in _known.values() if model in held), default=None)


def only_model() -> str:
    """The one model that the engines asked here serve; "" where there are several, or none is known."""
    with _lock:
        names = {name for held in _known.values() for name in held}
    return names.pop() if len(names) == 1 else ""
