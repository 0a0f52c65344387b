"""What a postmortem says, in which order, before any layout: shared by its Markdown and its HTML.

The headings are the field's common ones. What only people know is left to them, in sections that a second
run keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diag.exhibits import Cohort, Exhibit, Impact
from diag.model import Assessment, State, Verdict
from diag.quantities import clock, day, offset, plain, quantity, span, timestamp
from diag.renderers.page import Line, Page, page
from diag.renderers.report.detection import Detection, first_of, lines, moments, note

__all__ = ["HUMAN", "Human", "Report", "Row", "report_of"]

_TOLD = 3
_NOTHING = "not known"


@dataclass(frozen=True, slots=True)
class Human:
    """A section for people. ``prompt``: what to write there."""

    id: str
    title: str
    prompt: str


HUMAN: tuple[Human, ...] = (
    Human("response", "What was done", "Who did what, when, and what it changed. Who was told."),
    Human("confirmed", "Confirmation", "How the cause was confirmed, by whom; or what spoke against it."),
    Human("well", "What went well", "What shortened the incident."),
    Human("badly", "What went badly", "What cost time: which causes were looked at first, and why."),
    Human("luck", "Where we got lucky", "What could have made it worse."),
    Human("tasks", "Action items", "Owner, task, due date; one a line."),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: its head, then cells."""

    head: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The whole postmortem as plain text in reading order."""

    title: str
    date: str
    status: str
    page: Page
    facts: tuple[Line, ...]
    impact: tuple[Line, ...]
    impact_source: str
    cohorts: tuple[Row, ...]
    timeline: tuple[Row, ...]
    contributing: tuple[Line, ...]
    mitigation: tuple[Line, ...]
    prevention: tuple[Line, ...]
    detection: tuple[Line, ...]
    detection_note: str
    appendix: tuple[Line, ...]
    queries: tuple[Line, ...]
    exhibits: tuple[Exhibit, ...]


def report_of(verdict: Verdict, *, detections: Sequence[Detection] = ()) -> Report:
    """Arrange ``verdict``. ``detections``: the alerts that fired, and those that watch for its cause."""
    told = page(verdict, _TOLD)
    lead = next((one for one in verdict.assessments if one.id == verdict.leading), None)
    return Report(
        title=_title(lead),
        date=day(verdict.incident.start) if verdict.incident else day(verdict.generated_at),
        status=_status(lead, verdict),
        page=told,
        facts=tuple(_facts(verdict, lead, detections)),
        impact=tuple(_impact(verdict.impact, verdict)),
        impact_source=verdict.impact.source if verdict.impact else "",
        cohorts=tuple(_cohort(one) for one in verdict.impact.cohorts) if verdict.impact else (),
        timeline=tuple(_timeline(verdict, detections)),
        contributing=tuple(_contributing(verdict, lead)),
        mitigation=told.leading.actions if told.leading else (),
        prevention=tuple(_prevention(lead)),
        detection=tuple(lines(verdict, detections)),
        detection_note=note(detections),
        appendix=tuple(_appendix(verdict)),
        queries=tuple(_queries(verdict)),
        exhibits=verdict.exhibits,
    )


def _title(lead: Assessment | None) -> str:
    if lead is None:
        return "No incident in this window"
    if lead.id == "unknown":
        return "Slow service, cause not found"
    return plain(lead.title)


def _status(lead: Assessment | None, verdict: Verdict) -> str:
    if lead is None:
        return "nothing that users feel got worse"
    if lead.id == "unknown" or lead.state is not State.SUPPORTED:
        return (
            "cause not confirmed: the leading one is a guess" if lead.id != "unknown" else "cause not found"
        )
    return f"cause found by llm-diag {verdict.version}, to be confirmed by people"


def _facts(verdict: Verdict, lead: Assessment | None, detections: Sequence[Detection]) -> Iterator[Line]:
    if lead is not None:
        yield Line("Root cause", f"{lead.id} ({lead.state.value.replace('_', ' ')})")
        yield Line("Confidence", quantity(lead.confidence, "ratio"))
    if verdict.incident is not None:
        start, end = verdict.incident.start, verdict.incident.end
        yield Line("Began", f"{day(start)} {clock(start)} UTC")
        noticed = first_of(verdict, detections)
        if noticed is not None:
            yield Line("Noticed", noticed)
        yield Line("Seen until", f"{clock(end)} UTC ({span(round(end - start))})")
    if lead is not None:
        for kind, names in lead.scope.items():
            yield Line(f"Hit {kind}", _listed(names))


def _listed(names: Sequence[str], limit: int = 8) -> str:
    shown = ", ".join(plain(name) for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def _impact(impact: Impact | None, verdict: Verdict) -> Iterator[Line]:
    if impact is None:
        return
    counts = (
        ("Requests in the incident", impact.requests),
        ("of these slower than 95 % were before", impact.slow),
        ("failed", impact.failed),
        ("cut off by their clients", impact.left),
        ("Sessions", impact.sessions),
        ("Tenants", impact.tenants),
    )
    for words, count in counts:
        yield Line(words, _NOTHING if count is None else f"{count:,}")
    lost = impact.lost_seconds
    yield Line("Waited beyond the usual, all together", _NOTHING if lost is None else span(round(lost)))
    if lost is not None and impact.requests and verdict.incident is not None:
        yield Line("a request, on average", quantity(lost / impact.requests, "seconds"))


def _cohort(one: Cohort) -> Row:
    lost = _NOTHING if one.lost_seconds is None else span(round(one.lost_seconds))
    return Row(
        plain(one.name),
        (
            f"{one.requests:,}", quantity(one.before_seconds, "seconds"),
            quantity(one.during_seconds, "seconds"), lost,
        ),
    )  # fmt: skip


def _timeline(verdict: Verdict, detections: Sequence[Detection]) -> Iterator[Row]:
    onset = verdict.incident.start if verdict.incident else None
    known = [(one.time, plain(one.text)) for one in verdict.timeline]
    last = None
    for time, text in sorted({*known, *moments(detections)}):
        date = day(time)
        after = offset(time - onset) if onset is not None else ""
        yield Row(f"{date} {clock(time)}" if date != last else clock(time), (after, text))
        last = date


def _contributing(verdict: Verdict, lead: Assessment | None) -> Iterator[Line]:
    """What else stands: consequences of the root, and causes beside it."""
    for one in sorted(verdict.assessments, key=lambda a: a.rank):
        if one is lead or one.state is not State.SUPPORTED or one.id == "unknown":
            continue
        how = f"brought about by {one.explained_by}" if one.explained_by else "beside it"
        first = max((e for e in one.evidence if e.weight > 0), key=lambda e: e.weight, default=None)
        seen = f": {plain(first.text)}" if first is not None else ""
        yield Line(one.id, f"{plain(one.title)}, {how}{seen}")


def _prevention(lead: Assessment | None) -> Iterator[Line]:
    if lead is None or lead.id == "unknown":
        return
    for action in lead.mitigations:
        if not action.safe:
            yield Line("change", plain(action.text))
    if lead.next_check:
        yield Line("measure", plain(lead.next_check))


def _appendix(verdict: Verdict) -> Iterator[Line]:
    for one in verdict.source:
        yield Line("source", f"{one.kind} {plain(one.ref)}")
    if verdict.baseline is not None:
        both = f"{timestamp(verdict.baseline.start)} to {timestamp(verdict.baseline.end)}"
        yield Line("compared with", both)
    seen = verdict.coverage
    total = seen.signals_present + seen.signals_missing
    yield Line("signals seen", f"{seen.signals_present} of {total}")
    for said in verdict.notes:
        yield Line("note", plain(said))


def _queries(verdict: Verdict) -> Iterator[Line]:
    for one in verdict.queries:
        yield Line(f"{plain(one.signal)} ({plain(one.producer)})", plain(one.promql))
