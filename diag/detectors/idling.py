"""Whether a card waits for its host: no kernel runs for part of the time though its engine holds requests.

Work keeps a card busy: more of it, or a slower card, never makes it idle. What does lies in the process
or its host: a halt, steps launched one kernel at a time, a short CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diag.detectors.cues import degree_of
from diag.detectors.places import findings_here
from diag.detectors.silence import same_instance
from diag.detectors.view import View
from diag.model import Floats, Series
from diag.quantities import change, quantity
from diag.signals import SIGNALS

__all__ = ["IDLE", "Idling", "LateHost", "idling_of", "late_host"]

IDLE = 0.05
"""Of the time: a card under load is idle for less than half of this, and scrapes blur it."""

_FEWEST = 6  # points
_LATE: tuple[tuple[str, int], ...] = (
    ("node_numa_remote_ratio", 1), ("gpu_numa_match_ratio", -1), ("container_cpu_throttled_ratio", 1),
    ("node_cpu_pressure_ratio", 1), ("node_major_faults_per_second", 1), ("node_swap_used_bytes", 1),
)  # fmt: skip
_HELD = 0.9  # of a request, averaged over a look-back


@dataclass(frozen=True, slots=True)
class Idling:
    """Share of the time that the cards of ``instance`` ran no kernel while it held requests. ``degree``: how
    surely it rose (one half: 5 % of the time, or two standard errors). ``growth``: the last third of the
    incident over the first. ``full_ratio``: share of the incident's points at which they were as busy as
    ever."""

    instance: str
    before: float
    during: float
    degree: float
    growth: float
    full_ratio: float

    @property
    def text(self) -> str:
        """For an operator."""
        shares = f"{quantity(self.during, 'ratio')} of the time (before: {quantity(self.before, 'ratio')})"
        return f"a card of {self.instance} runs no kernel for {shares} while requests are there"


@dataclass(frozen=True, slots=True)
class LateHost:
    """Whether a sign of a host that launches late by itself ``moved``, which, and in words."""

    signal: str
    moved: bool
    text: str


def late_host(view: View) -> LateHost | None:
    """Whether the slow engines' hosts became short of CPU or memory, or far from the card; None if unseen."""
    seen = [(f, sign) for name, sign in _LATE for f in findings_here(view, name)[0]]
    if not seen:
        return None
    most, sign = max(seen, key=lambda pair: pair[1] * pair[0].effect)
    if sign * most.effect < 1:
        return LateHost(most.signal, False, "its host is as near the card and as free as before")
    numbers = change(most.before, most.during, most.unit)
    return LateHost(
        most.signal, True, f"{SIGNALS[most.signal].meaning}: {numbers}, which keeps a card waiting by itself"
    )


def idling_of(view: View) -> Idling | None:
    """The slow engine (of all, when none stands out) whose cards idle most beyond before; None where no
    card is known to be an engine's, or with too few points."""
    found = [
        one
        for where in view.affected or sorted(view.engines)
        for card in _cards(view, where)
        if (one := _idling(view, where, card)) is not None
    ]
    return max(found, key=lambda one: one.during - one.before, default=None)


def _cards(view: View, instance: str) -> list[Series]:
    every = view.case.of("gpu_utilization_ratio")
    joins = [j for j in view.case.joins if j.instance == instance and j.node is not None]
    if not joins:
        return list(every) if len(view.engines) == 1 and len(every) == 1 else []
    nodes, gpus = {j.node for j in joins}, {gpu for j in joins for gpu in j.gpus}
    return [
        s
        for s in every
        if s.labels.get("node") in nodes
        and (not gpus or bool(gpus & {s.labels.get("gpu", ""), s.labels.get("gpu_index", "")}))
    ]


def _idling(view: View, instance: str, card: Series) -> Idling | None:
    running = same_instance(view.case, "running_requests", instance)
    if running is None:
        return None
    held = np.interp(card.times, running.times, np.nan_to_num(running.values))
    known = np.isfinite(card.values) & (held >= _HELD)
    idle = 1.0 - np.clip(card.values, 0.0, 1.0)
    base, felt = view.spans.baseline, view.spans.settled
    quiet = known & (card.times >= base.start) & (card.times <= base.end)
    bad = known & (card.times >= felt.start) & (card.times <= felt.end)
    if min(quiet.sum(), bad.sum()) < _FEWEST:
        return None
    before, during = float(idle[quiet].mean()), float(idle[bad].mean())
    error = np.hypot(_error(idle[quiet]), _error(idle[bad])) * np.sqrt(view.spans.overlap_points)
    first, last = np.array_split(idle[bad], 3)[0], np.array_split(idle[bad], 3)[2]
    growth = (float(last.mean()) - before) / max(float(first.mean()) - before, 0.01)
    return Idling(
        instance, before, during, degree_of((during - before) / max(IDLE, 2.0 * float(error))),
        max(growth, 0.0), float((idle[bad] < before + IDLE / 2).mean()),
    )  # fmt: skip


def _error(values: Floats) -> float:
    return float(values.std() / np.sqrt(len(values)))
