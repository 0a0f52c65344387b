"""What an answer says, in which order, before any layout: shared by console and markdown.

A page is read top down by somebody who was asleep a minute ago: the sentence, the cause and its
numbers, what to do, what else stands, what was excluded, what nobody could look at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from diag.model import Assessment, Evidence, Lead, Stance, State, Symptom, Verdict, Window
from diag.quantities import change, clock, day, offset, percent, plain, quantity, span
from diag.signals import SIGNALS

__all__ = ["Cause", "Line", "Link", "Page", "page"]

_EVIDENCE_LIMIT = 5
_NAMES_LIMIT = 6
_LEADS_LIMIT = 6
_LEAST_CONFIDENCE = 0.1
_SYMPTOMS_LIMIT = 6


@dataclass(frozen=True, slots=True)
class Line:
    """A list entry: what it is about (ids or a sign), and what is said."""

    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """A step of the chain: time of day, distance from the onset, what moved."""

    time: str
    after: str
    text: str


@dataclass(frozen=True, slots=True)
class Cause:
    """One hypothesis that stands, told in full."""

    id: str
    title: str
    state: str
    facts: tuple[str, ...]
    hits: tuple[str, ...]
    chain: tuple[Link, ...]
    evidence: tuple[Line, ...]
    actions: tuple[Line, ...]
    missing: tuple[str, ...]
    next_check: str
    runbook: str


@dataclass(frozen=True, slots=True)
class Page:
    """The whole answer as plain text in reading order. ``healthy``: nothing is wrong for users."""

    headline: str
    context: tuple[str, ...]
    healthy: bool
    symptoms: tuple[Line, ...]
    leading: Cause | None
    others: tuple[Cause, ...]
    left_out: str
    leads: tuple[Line, ...]
    ruled_out: tuple[Line, ...]
    unchecked: tuple[Line, ...]
    notes: tuple[str, ...]
    next_measurement: str


def page(verdict: Verdict, top: int) -> Page:
    """Arrange ``verdict``; at most ``top`` causes are told in full, the rest are named."""
    ranked = sorted(verdict.assessments, key=lambda one: one.rank)
    leading = next((one for one in ranked if one.id == verdict.leading), None)
    standing = [one for one in ranked if one is not leading and _stands(one) and not _mere_doubt(one)]
    told = [one for one in standing if _worth_telling(one, healthy=verdict.leading is None)]
    told = told[: max(0, top - (1 if leading else 0))]
    reference = _reference_onset(verdict, leading)
    return Page(
        headline=_headline(verdict),
        context=_context(verdict),
        healthy=verdict.leading is None,
        symptoms=tuple(_symptom(one) for one in verdict.symptoms[:_SYMPTOMS_LIMIT]),
        leading=_cause(leading, reference) if leading else None,
        others=tuple(_cause(one, reference) for one in told),
        left_out=_names([f"{one.id} ({_state(one)})" for one in standing if one not in told], limit=12),
        leads=_leads(verdict, leading),
        # That some known cause was found is no news beside it.
        ruled_out=tuple(
            Line(one.id, _ruled_out_by(one))
            for one in ranked
            if one.state is State.RULED_OUT and one.id != "unknown"
        ),
        unchecked=_unchecked(one for one in ranked if one.state is State.NOT_ASSESSABLE),
        notes=tuple(plain(note) for note in verdict.notes),
        next_measurement=_next_measurement(leading, told),
    )


def _stands(one: Assessment) -> bool:
    return one.state in (State.SUPPORTED, State.UNDECIDED)


def _worth_telling(one: Assessment, *, healthy: bool) -> bool:
    """In full, that is. What is merely not excluded is named, so that it is neither hidden nor shouted."""
    return one.state is State.SUPPORTED or (not healthy and one.confidence >= _LEAST_CONFIDENCE)


def _mere_doubt(one: Assessment) -> bool:
    """That something else may be at work is said by every confidence below 1."""
    return one.id == "unknown" and one.state is State.UNDECIDED


def _reference_onset(verdict: Verdict, leading: Assessment | None) -> float | None:
    if leading and leading.onset is not None:
        return leading.onset
    known = [one.onset for one in verdict.symptoms if one.onset is not None]
    return min(known, default=None)


def _headline(verdict: Verdict) -> str:
    summary = plain(verdict.summary)
    if verdict.leading is None and "no incident" not in summary.lower():
        return f"No incident in this window. {summary}".strip()
    return summary


def _context(verdict: Verdict) -> tuple[str, ...]:
    lines = []
    if verdict.incident:
        lines.append(f"window {_window(verdict.incident)}")
    if verdict.baseline:
        lines.append(f"compared with {_window(verdict.baseline)}")
    sources = _names([f"{one.kind} {plain(one.ref)}" for one in verdict.source])
    coverage = verdict.coverage
    seen = f"{coverage.signals_present} of {coverage.signals_present + coverage.signals_missing} signals seen"
    lines.append(f"{sources}, {seen}" if sources else seen)
    return tuple(lines)


def _window(window: Window) -> str:
    start, end = day(window.start), day(window.end)
    until = clock(window.end) if start == end else f"{end} {clock(window.end)}"
    return f"{start} {clock(window.start)} to {until} UTC ({span(round(window.seconds))})"


def _symptom(one: Symptom) -> Line:
    since = f"since {clock(one.onset)} UTC" if one.onset is not None else ""
    parts = (change(one.before, one.during, one.unit), since, _whom(one.scope))
    return Line(_meaning(one.signal), ", ".join(filter(None, parts)))


def _meaning(name: str) -> str:
    """What a signal measures, in the vocabulary's first words; the name itself where it has none."""
    known = SIGNALS.get(name)
    return known.meaning.split(";")[0].split(" (")[0] if known else name


def _whom(labels: Mapping[str, str]) -> str:
    """Labels as words: a cohort is named by itself, anything else with its kind."""
    words = (
        plain(value).replace("_", " ") if key == "cohort" else f"{plain(key)} {plain(value)}"
        for key, value in sorted(labels.items())
        if value
    )
    return ", ".join(words)


def _cause(one: Assessment, reference: float | None) -> Cause:
    return Cause(
        id=one.id,
        title=plain(one.title),
        state=_state(one),
        facts=_facts(one),
        hits=tuple(
            f"{plain(kind)} {_names([plain(name) for name in names])}"
            for kind, names in one.scope.items()
            if names
        ),
        chain=tuple(
            Link(
                clock(link.onset) if link.onset is not None else "",
                offset(link.onset - reference) if link.onset is not None and reference is not None else "",
                plain(link.text),
            )
            for link in one.chain
        ),
        evidence=_strongest(one.evidence),
        actions=_actions(one),
        missing=tuple(dict.fromkeys(plain(gap.how_to_get) for gap in one.missing)),
        next_check=plain(one.next_check),
        runbook=one.runbook,
    )


def _state(one: Assessment) -> str:
    return one.state.value.replace("_", " ")


def _facts(one: Assessment) -> tuple[str, ...]:
    facts = [f"confidence {quantity(one.confidence, 'ratio')}"]
    if one.onset is not None:
        facts.append(f"since {clock(one.onset)} UTC")
    if one.explained_share is not None and math.isfinite(one.explained_share):
        facts.append(f"explains up to {percent(one.explained_share)} of the excess seconds")
    if one.explained_by:
        facts.append(f"itself brought about by {one.explained_by}")
    return tuple(facts)


def _strongest(evidence: Sequence[Evidence]) -> tuple[Line, ...]:
    """The heaviest observations; the heaviest contrary one always has a seat."""
    heaviest = sorted(evidence, key=lambda one: -abs(one.weight))
    chosen = heaviest[:_EVIDENCE_LIMIT]
    contrary = next(filter(_speaks_against, heaviest), None)
    if contrary and contrary not in chosen:
        chosen[-1] = contrary
    chosen.sort(key=lambda one: (_speaks_against(one), -abs(one.weight)))
    return tuple(
        Line((Stance.AGAINST if _speaks_against(one) else Stance.FOR).value, _observation(one))
        for one in chosen
    )


def _speaks_against(one: Evidence) -> bool:
    """A prediction that came true by half counts as for, yet may weigh against."""
    return one.stance is Stance.AGAINST or one.weight < 0


def _observation(one: Evidence) -> str:
    """The sentence, and the numbers where the sentence has none."""
    text = plain(one.text)
    known = one.before is not None or one.during is not None
    if known and not any(character.isdigit() for character in text):
        text = f"{text} ({change(one.before, one.during, one.unit)})"
    return text


def _actions(one: Assessment) -> tuple[Line, ...]:
    ordered = sorted(one.mitigations, key=lambda action: not action.safe)
    return tuple(Line("safe" if action.safe else "with care", plain(action.text)) for action in ordered)


def _ruled_out_by(one: Assessment) -> str:
    against = [entry for entry in one.evidence if _speaks_against(entry)]
    if not against:
        return f"another cause accounts for it: {one.explained_by}" if one.explained_by else plain(one.title)
    return _observation(max(against, key=lambda entry: abs(entry.weight)))


def _unchecked(assessments: Iterable[Assessment]) -> tuple[Line, ...]:
    """Hypotheses that lack the same thing share a line."""
    groups: dict[str, list[str]] = {}
    for one in assessments:
        needed = sorted(one.missing, key=lambda gap: not gap.needed)
        how = (
            plain(needed[0].how_to_get) if needed else "the signals are there, but too few points to judge by"
        )
        groups.setdefault(how, []).append(one.id)
    return tuple(Line(", ".join(ids), how) for how, ids in groups.items())


def _leads(verdict: Verdict, leading: Assessment | None) -> tuple[Line, ...]:
    """For whoever has to go on looking; beside a supported cause they would only distract."""
    if leading is None or (leading.id != "unknown" and leading.state is State.SUPPORTED):
        return ()
    return tuple(_lead(one) for one in verdict.leads[:_LEADS_LIMIT])


def _lead(one: Lead) -> Line:
    text = plain(one.text)
    numbers = change(one.before, one.during, one.unit)
    told = f"{text} ({numbers})" if text and not any(c.isdigit() for c in text) else text or numbers
    return Line(one.signal, ", ".join(filter(None, (told, _whom(one.labels)))))


def _next_measurement(leading: Assessment | None, told: Sequence[Assessment]) -> str:
    first = leading or next(iter(told), None)
    return plain(first.next_check) if first else ""


def _names(names: Sequence[str], limit: int = _NAMES_LIMIT) -> str:
    shown = ", ".join(names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
