"""Families of cases: which seeds belong to whom, and how many cases of each scenario a family has.

Seeds of two families never meet. What is written while looking at *develop*, and fitted on *calibrate*, is
scored on *test*, which nobody looks at one by one, and on *shifted*, where everything is harder.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from diag.accuracy.label import Kind
from diag.errors import UsageError
from diag.simulate.scenarios.draw import Scenario

__all__ = ["FAMILIES", "SHARES", "Family", "Quota", "family_named", "quotas"]


@dataclass(frozen=True, slots=True)
class Family:
    """``first_seed`` … ``first_seed + seeds − 1`` are its own; ``cases``: how many it should
    have at least."""

    name: str
    first_seed: int
    seeds: int
    cases: int

    def seed(self, scenario: str, number: int) -> int:
        """The ``number``-th seed of a scenario. It does not depend on which other scenarios there are, so
        that a new one leaves all old cases as they were."""
        return self.first_seed + (zlib.crc32(scenario.encode()) + number) % self.seeds


FAMILIES: Mapping[str, Family] = {
    one.name: one
    for one in (
        Family("develop", 0, 10_000, 400),
        Family("calibrate", 100_000, 100_000, 400),
        Family("test", 200_000, 100_000, 1000),
        Family("shifted", 300_000, 100_000, 300),
    )
}

SHARES: Mapping[Kind, float] = {Kind.HEALTHY: 0.12, Kind.UNKNOWN: 0.12, Kind.DOUBLE: 0.12, Kind.CAUSE: 0.64}
"""How much of a family is of which kind."""


@dataclass(frozen=True, slots=True)
class Quota:
    """How many cases of ``scenario`` a family wants."""

    scenario: str
    cases: int


def family_named(name: str) -> Family:
    """The family ``name``; ``UsageError`` when there is none."""
    if name not in FAMILIES:
        raise UsageError(f"no family is called {name!r}", hint=f"choose from {', '.join(FAMILIES)}")
    return FAMILIES[name]


def quotas(scenarios: Iterable[Scenario], cases: int) -> tuple[Quota, ...]:
    """At least ``cases`` cases in the family's shares; every cause equally often, whatever the number of
    scenarios that show it, and every other scenario equally often within its kind."""
    known = list(scenarios)
    found: list[Quota] = []
    for kind, share in SHARES.items():
        own = [one for one in known if one.kind == kind]
        topics = dict.fromkeys(one.hypothesis or one.id for one in own)
        if not topics:
            continue
        each = -(-round(cases * share) // len(topics))
        for topic in topics:
            several = [one.id for one in own if (one.hypothesis or one.id) == topic]
            for number, id in enumerate(several):
                wanted = each // len(several) + (number < each % len(several))
                if wanted:
                    found.append(Quota(id, wanted))
    return tuple(found)
