"""How the incident was noticed, and how it would have been: alerts that fired, and those that did not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diag.model import Verdict
from diag.quantities import clock, plain, span
from diag.renderers.page import Line

__all__ = ["Detection", "first_of", "lines", "moments", "note"]


@dataclass(frozen=True, slots=True)
class Detection:
    """An alert. ``after_seconds``: from its condition until it fires, None where nobody here knows the rule;
    ``fired``: whether it did in this incident, None where nobody evaluated it; ``at``, ``until``: from when
    to when (unix seconds; None: before the data begins, not yet over)."""

    alert: str
    after_seconds: float | None = None
    fired: bool | None = None
    at: float | None = None
    until: float | None = None


def first_of(verdict: Verdict, detections: Sequence[Detection]) -> str | None:
    """Who noticed first, and how long after the onset; None where no alert is known to have fired."""
    onset = verdict.incident.start if verdict.incident else None
    times = [(one.at, one.alert) for one in detections if one.at is not None]
    if onset is None or not times:
        return None
    at, alert = min(times)
    return f"{clock(at)} UTC by {plain(alert)}, {_beside(at - onset)}"


def lines(verdict: Verdict, detections: Sequence[Detection]) -> Iterator[Line]:
    """One line an alert, those that fired first."""
    for one in sorted(detections, key=lambda d: (d.fired is not True, d.at or 0.0)):
        yield Line(plain(one.alert), _told(verdict, one))


def note(detections: Sequence[Detection]) -> str:
    """What has to be said before the list: unknown is not silent."""
    if not any(one.fired is None for one in detections):
        return ""
    if any(one.fired for one in detections):
        return "What fired is known; whether the others here were evaluated at all is not:"
    return "The data holds no record of alerts. Of those that ship with llm-diag these watch for the cause:"


def moments(detections: Sequence[Detection]) -> Iterator[tuple[float, str]]:
    """For the timeline: when alerts fired and when they were over."""
    for one in detections:
        if one.at is not None:
            yield one.at, f"alert {plain(one.alert)} fires"
        if one.until is not None:
            yield one.until, f"alert {plain(one.alert)} is over"


def _told(verdict: Verdict, one: Detection) -> str:
    if one.fired:
        if one.at is None:
            return "fired before this window already"
        onset = verdict.incident.start if verdict.incident else None
        beside = f", {_beside(one.at - onset)}" if onset is not None else ""
        return f"fired at {clock(one.at)} UTC{beside}"
    if one.fired is not None:
        return "watches for this cause and did not fire in this window"
    assert one.after_seconds is not None
    return f"fires {_wait(one.after_seconds)} its condition comes true{_earliest(verdict, one.after_seconds)}"


def _wait(seconds: float) -> str:
    return f"{span(round(seconds))} after" if seconds else "as soon as"


def _earliest(verdict: Verdict, after_seconds: float) -> str:
    """No condition comes true before the first thing that moved."""
    lead = next((one for one in verdict.assessments if one.id == verdict.leading), None)
    if verdict.incident is None:
        return ""
    moved = [link.onset for link in lead.chain if link.onset is not None] if lead else []
    at = min([verdict.incident.start, *moved]) + after_seconds
    late = ", when this data had ended" if at > verdict.incident.end else ""
    return f"; not before {clock(at)} UTC{late}"


def _beside(seconds: float) -> str:
    if abs(seconds) < 1:
        return "at the onset"
    return f"{span(abs(round(seconds)))} {'after' if seconds > 0 else 'before'} the onset"
