"""What a scenario is, and the dice it throws.

A scenario turns a ``Draw`` into a ``Plan``: it starts from the healthy service of the draw
(``diag.simulate.scenarios.service.healthy``) and lets one thing go wrong. Everything random comes from
``Draw.rng``, so that a seed is an incident.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from diag.simulate.plan import Plan
from diag.simulate.profiles import Profile, ramp, step

__all__ = ["FAMILIES", "Conditions", "Draw", "Scenario", "draw_of"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Conditions:
    """How hard a family of cases is. ``severity``: least and most, 0 (nothing) … 1 (severe);
    ``noise_factor``: of all measuring noise and lost scrapes; ``confounders``: innocent things that happen
    too, mean number; ``replicas``/``gpus_per_node``: drawn from; ``missing_ratio``: chance that an exporter
    is not there."""

    severity: tuple[float, float] = (0.25, 1.0)
    noise_factor: float = 1.0
    confounders: float = 1.0
    replicas: tuple[int, ...] = (1, 1, 2, 2, 3, 4, 6)
    gpus_per_node: tuple[int, ...] = (1, 2, 4, 8)
    missing_ratio: float = 0.08


STANDARD = Conditions()
SHIFTED = Conditions(
    severity=(0.12, 0.5), noise_factor=2.5, confounders=2.0, replicas=(1, 2, 3, 5, 8), gpus_per_node=(2, 8)
)
FAMILIES = {"develop": STANDARD, "calibrate": STANDARD, "test": STANDARD, "shifted": SHIFTED}
"""Families of cases by name. Their seeds never meet: see ``diag.accuracy``."""


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One throw. ``severity``: 0 … 1; ``onset``: seconds since the window's start; ``seconds``: its width."""

    seed: int
    conditions: Conditions
    rng: np.random.Generator
    severity: float
    seconds: float
    onset: float

    def between(self, low: float, high: float) -> float:
        """Uniform."""
        return float(self.rng.uniform(low, high))

    def about(self, low: float, high: float) -> float:
        """Log-uniform."""
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def chance(self, ratio: float) -> bool:
        """True in that share of throws."""
        return bool(self.rng.random() < ratio)

    def pick(self, options: tuple[T, ...]) -> T:
        """One of them."""
        return options[int(self.rng.integers(len(options)))]

    def severe(self, mild: float, severe: float) -> float:
        """Between ``mild`` (severity 0) and ``severe`` (1), on a log scale; both of one sign."""
        return float(np.exp(np.log(mild) + self.severity * (np.log(severe) - np.log(mild))))

    def onwards(self, before: float, after: float, *, ramp_ratio: float = 0.4) -> Profile:
        """From ``before`` to ``after`` at the onset: a step, or (in ``ramp_ratio`` of throws) a climb over a
        tenth to a third of what is left."""
        if not self.chance(ramp_ratio):
            return step(self.onset, before, after)
        left = self.seconds - self.onset
        return ramp(self.onset, self.onset + self.between(0.1, 0.33) * left, before, after)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file. ``id`` names the file; ``hypothesis``: the id of the catalogue that it is for, "" for healthy
    and unknown ones; ``kind``: "cause", "healthy", "unknown" or "double"; ``plan``: see the module."""

    id: str
    hypothesis: str
    kind: str
    text: str
    plan: Callable[[Draw], Plan]


def draw_of(seed: int, conditions: Conditions = STANDARD) -> Draw:
    """The throw of ``seed``: window of 40 to 80 minutes, onset after 45 to 75 % of it."""
    rng = np.random.default_rng([seed, 0xD1A6])
    severity = float(rng.uniform(*conditions.severity))
    seconds = float(rng.choice([2400.0, 3000.0, 3600.0, 4800.0]))
    onset = float(np.round(seconds * rng.uniform(0.45, 0.75)))
    return Draw(seed, conditions, rng, severity, seconds, onset)
