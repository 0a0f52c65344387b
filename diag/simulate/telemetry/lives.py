"""The lives of a process: from one start to the next, and the settings it had."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from diag.model import Floats
from diag.simulate.observed import Run
from diag.simulate.plan import Replica, Restart, Settings

__all__ = ["Life", "lives_of", "living", "place_in"]

_STARTING_SECONDS = 30.0  # between the start of the process and the first request it serves


@dataclass(frozen=True, slots=True)
class Life:
    """``began``: start of the process; it serves, its metrics page too, from ``since`` up to ``until``.
    Seconds since the window's start, negative before it."""

    began: float
    since: float
    until: float
    settings: Settings


def lives_of(run: Run, replica: Replica) -> tuple[Life, ...]:
    """The lives of ``replica`` in order; one without restarts has a single life without end."""
    downs = sorted((down, up) for name, down, up in run.restarts if name == replica.name)
    begun = -replica.uptime_seconds
    life = Life(begun, begun + _STARTING_SECONDS, np.inf, replica.settings)
    lives: list[Life] = []
    for down, up in downs:
        why = _planned(replica, down)
        lives.append(replace(life, until=down))
        settings = (why.settings if why is not None else None) or life.settings
        began = up - min(_STARTING_SECONDS, 0.9 * (up - down))
        life = Life(began, up, np.inf, settings)
    return tuple(one for one in (*lives, life) if np.isfinite(one.since))


def _planned(replica: Replica, down: float) -> Restart | None:
    found = [restart for restart in replica.restarts if abs(restart.time - down) < 1.0]
    return min(found, key=lambda restart: abs(restart.time - down), default=None)


def place_in(lives: tuple[Life, ...], times: Floats) -> NDArray[np.intp]:
    """Which life shows its page at ``times``, shape (n,); -1 while none does."""
    place: NDArray[np.intp] = np.full(times.shape, -1, dtype=np.intp)
    for index, life in enumerate(lives):
        place[(times >= life.since) & (times < life.until)] = index
    return place


def living(lives: tuple[Life, ...], times: Floats) -> NDArray[np.bool_]:
    """Whether the process serves at ``times``, shape (n,)."""
    alive = np.zeros(times.shape, dtype=np.bool_)
    for life in lives:
        alive |= (times >= life.since) & (times < life.until)
    return alive
