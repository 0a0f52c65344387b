"""From a finding to evidence: did what a hypothesis predicts come true, and could we have seen it?

``degree`` grows smoothly with the effect, so that a shift just below its floor is weak support and
not a clean no. Contrary evidence is *decisive* only with power: the signal was there for four fifths
of the incident and the data exclude an effect as large as the smallest the hypothesis predicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from diag import quantities
from diag.detectors.wording import change
from diag.model import Evidence, Finding, Stance
from diag.quantities import quantity
from diag.signals import SIGNALS

__all__ = [
    "PRESENT",
    "Explained",
    "Named",
    "Reach",
    "degree_of",
    "excluded",
    "falls",
    "flat",
    "rises",
    "stated",
]

PRESENT = 0.8
_STEEPNESS = 6.0


@dataclass(frozen=True, slots=True)
class Explained:
    """Share (0 … 1) of the excess seconds that removing this cause would remove."""

    share: float


@dataclass(frozen=True, slots=True)
class Named:
    """The cause as it stands in this case, for the summary: "tenant t-b takes most of the capacity"."""

    text: str


@dataclass(frozen=True, slots=True)
class Reach:
    """Whom the cause hits: ``{"sessions": (…), "instances": (…)}``."""

    scope: Mapping[str, tuple[str, ...]]


def degree_of(effect: float) -> float:
    """0 … 1; one half at the floor."""
    return 1.0 / (1.0 + math.exp(-_STEEPNESS * max(min(effect - 1.0, 20.0), -20.0)))


def excluded(finding: Finding, sign: int, smallest: float = 1.0) -> bool:
    """Whether a shift of ``smallest`` floors in the direction ``sign`` is excluded with power."""
    bound = finding.high if sign > 0 else finding.low
    return bound is not None and finding.present_ratio >= PRESENT and sign * bound < smallest


def rises(cue: str, finding: Finding, what: str, *, smallest: float = 1.0, sign: int = 1) -> Evidence:
    """The hypothesis predicts that ``finding`` moves up by at least ``smallest`` floors.

    ``what`` names the quantity for the operator."""
    degree = degree_of(sign * finding.effect / smallest)
    stance = Stance.FOR if degree >= 0.5 else Stance.AGAINST
    decisive = stance is Stance.AGAINST and excluded(finding, sign, smallest)
    text = f"{what} {change(finding)}"
    if stance is Stance.AGAINST:
        text += _limit(finding, sign)
    return Evidence(
        cue, finding.signal, stance, degree, text, finding.before, finding.during, finding.unit,
        finding.onset, decisive,
    )  # fmt: skip


def falls(cue: str, finding: Finding, what: str, *, smallest: float = 1.0) -> Evidence:
    """The hypothesis predicts that ``finding`` moves down."""
    return rises(cue, finding, what, smallest=smallest, sign=-1)


def flat(cue: str, finding: Finding, what: str, *, sign: int = 0) -> Evidence:
    """The hypothesis predicts that ``finding`` stays (``sign`` ±1: does not move that way)."""
    effect = abs(finding.effect) if sign == 0 else sign * finding.effect
    degree = 1.0 - degree_of(effect)
    stance = Stance.FOR if degree >= 0.5 else Stance.AGAINST
    if stance is Stance.AGAINST:
        text = f"{what} {change(finding)}, which this cause does not explain"
    elif sign and finding.moved:
        numbers = quantities.change(finding.before, finding.during, finding.unit)
        text = f"{what} did not {'rise' if sign > 0 else 'fall'} ({numbers})"
    else:
        text = f"{what} {change(finding)}"
    return Evidence(
        cue, finding.signal, stance, degree, text, finding.before, finding.during, finding.unit, finding.onset
    )


def stated(
    cue: str, signal: str, true: bool, text: str, *, decisive: bool = False, degree: float | None = None,
    before: float | None = None, during: float | None = None, unit: str = "", onset: float | None = None,
) -> Evidence:  # fmt: skip
    """Evidence from something other than a shift: a fact, a count, a coincidence."""
    stance = Stance.FOR if true else Stance.AGAINST
    strength = degree if degree is not None else (1.0 if true else 0.0)
    return Evidence(cue, signal, stance, strength, text, before, during, unit, onset, decisive and not true)


def _limit(finding: Finding, sign: int) -> str:
    """What the data still allow, in the quantity's own terms; "" when they exclude nothing."""
    bound = finding.high if sign > 0 else finding.low
    if bound is None or not excluded(finding, sign):
        return ": too little data to exclude it" if bound is None and abs(finding.effect) < 1 else ""
    signal = SIGNALS[finding.signal]
    room = max(sign * bound, 0.0) * signal.floor
    word = "rise" if sign > 0 else "fall"
    if signal.relative and room < 0.005:
        return f"; a {word} is excluded"
    if signal.relative:
        share = math.exp(room) - 1 if sign > 0 else 1 - math.exp(-room)
        return f"; a {word} of more than {quantity(share, 'ratio')} is excluded"
    return (
        f"; a {word} of more than {quantity(room, signal.unit)} is excluded"
        if room > 0.005 * max(abs(finding.before), 1e-9)
        else f"; a {word} is excluded"
    )
