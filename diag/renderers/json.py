"""``diag.verdict/1``: the verdict as JSON, and back.

The shapes below are the public contract, in its key order; ``verdict.schema.json`` says the same
for other languages. What only triage needs (an evidence's cue and degree) stays inside.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Literal

import msgspec

from diag.errors import DiagError
from diag.exhibits import Exhibit, Fired, Impact, Query
from diag.model import (
    Assessment,
    ChainLink,
    Coverage,
    Evidence,
    Lead,
    Missing,
    Mitigation,
    Moment,
    SourceRef,
    Stance,
    State,
    Symptom,
    Verdict,
    Window,
)
from diag.quantities import rounded, timestamp
from diag.renderers import RenderOptions

__all__ = ["SCHEMA", "load", "render"]

SCHEMA: Literal["diag.verdict/1"] = "diag.verdict/1"

Number = float | int | None


class _Source(msgspec.Struct):
    kind: str
    ref: str


class _Windows(msgspec.Struct):
    baseline: tuple[str, str] | None
    incident: tuple[str, str] | None


class _Symptom(msgspec.Struct):
    signal: str
    scope: dict[str, str]
    before: Number
    during: Number
    unit: str
    onset: str | None


class _Link(msgspec.Struct):
    signal: str
    onset: str | None
    text: str


class _Evidence(msgspec.Struct):
    signal: str
    stance: Stance
    weight: Number
    before: Number
    during: Number
    unit: str
    onset: str | None
    text: str


class _Missing(msgspec.Struct):
    signal: str
    how_to_get: str


class _Mitigation(msgspec.Struct):
    text: str
    safe: bool


class _Assessment(msgspec.Struct):
    id: str
    title: str
    state: State
    confidence: Number
    rank: int
    scope: dict[str, tuple[str, ...]]
    onset: str | None
    explained_share: Number
    explained_by: str | None
    chain: tuple[_Link, ...]
    evidence: tuple[_Evidence, ...]
    missing: tuple[_Missing, ...]
    mitigations: tuple[_Mitigation, ...]
    next_check: str
    runbook: str


class _Moment(msgspec.Struct):
    time: str | None
    signal: str
    text: str


class _Lead(msgspec.Struct):
    signal: str
    labels: dict[str, str]
    before: Number
    during: Number
    unit: str
    text: str


class _Coverage(msgspec.Struct):
    signals_present: int
    signals_missing: int


class _Report(msgspec.Struct):
    """What `diag report` draws. Here alone times are unix seconds: they are axes."""

    impact: Impact | None = None
    exhibits: tuple[Exhibit, ...] = ()
    names: dict[str, tuple[str, ...]] = {}
    fired: tuple[Fired, ...] = ()
    queries: tuple[Query, ...] = ()


class _Verdict(msgspec.Struct):
    schema: Literal["diag.verdict/1"]
    version: str
    generated_at: str
    source: tuple[_Source, ...]
    windows: _Windows
    summary: str
    symptoms: tuple[_Symptom, ...]
    leading: str | None
    assessments: tuple[_Assessment, ...]
    timeline: tuple[_Moment, ...]
    leads: tuple[_Lead, ...]
    coverage: _Coverage
    notes: tuple[str, ...] = ()
    report: _Report | msgspec.UnsetType = msgspec.UNSET


class _Header(msgspec.Struct):
    schema: str = ""


def render(verdict: Verdict, options: RenderOptions) -> str:  # noqa: ARG001  one face for all outputs
    """``verdict`` as indented JSON. The layout options don't apply: JSON always tells all."""
    return msgspec.json.format(msgspec.json.encode(_written(verdict)), indent=2).decode() + "\n"


def load(text: str | bytes) -> Verdict:
    """The verdict in ``text``; ``DiagError`` when it is none, or of a schema unknown here."""
    try:
        header = msgspec.json.decode(text, type=_Header)
    except msgspec.MsgspecError as error:
        raise _no_verdict(str(error)) from error
    if header.schema != SCHEMA:
        if header.schema.startswith("diag.verdict/"):
            raise DiagError(
                f"the verdict has schema {header.schema}, this version reads {SCHEMA}",
                hint="upgrade llm-diag",
            )
        raise _no_verdict(f"schema is {header.schema!r}")
    try:
        return _read(msgspec.json.decode(text, type=_Verdict))
    except (msgspec.MsgspecError, ValueError) as error:
        raise _no_verdict(str(error)) from error


def _no_verdict(why: str) -> DiagError:
    return DiagError(f"not a saved verdict ({why})", hint="give a file written by `diag triage … --json`")


def _written(verdict: Verdict) -> _Verdict:
    return _Verdict(
        schema=SCHEMA,
        version=verdict.version,
        generated_at=timestamp(verdict.generated_at) or "",
        source=tuple(_Source(one.kind, one.ref) for one in verdict.source),
        windows=_Windows(_written_window(verdict.baseline), _written_window(verdict.incident)),
        summary=verdict.summary,
        symptoms=tuple(
            _Symptom(
                one.signal,
                dict(one.scope),
                rounded(one.before),
                rounded(one.during),
                one.unit,
                timestamp(one.onset),
            )
            for one in verdict.symptoms
        ),
        leading=verdict.leading,
        assessments=tuple(_written_assessment(one) for one in verdict.assessments),
        timeline=tuple(_Moment(timestamp(one.time), one.signal, one.text) for one in verdict.timeline),
        leads=tuple(
            _Lead(one.signal, dict(one.labels), rounded(one.before), rounded(one.during), one.unit, one.text)
            for one in verdict.leads
        ),
        coverage=_Coverage(verdict.coverage.signals_present, verdict.coverage.signals_missing),
        notes=verdict.notes,
        report=_written_report(verdict),
    )


def _written_report(verdict: Verdict) -> _Report | msgspec.UnsetType:
    names = {kind: tuple(known) for kind, known in verdict.names.items() if known}
    report = _Report(verdict.impact, verdict.exhibits, names, verdict.fired, verdict.queries)
    return msgspec.UNSET if report == _Report() else report


def _written_window(window: Window | None) -> tuple[str, str] | None:
    if window is None:
        return None
    start, end = timestamp(window.start), timestamp(window.end)
    return (start, end) if start and end else None


def _written_assessment(one: Assessment) -> _Assessment:
    return _Assessment(
        id=one.id,
        title=one.title,
        state=one.state,
        confidence=rounded(one.confidence),
        rank=one.rank,
        scope={kind: tuple(names) for kind, names in one.scope.items()},
        onset=timestamp(one.onset),
        explained_share=rounded(one.explained_share),
        explained_by=one.explained_by,
        chain=tuple(_Link(link.signal, timestamp(link.onset), link.text) for link in one.chain),
        evidence=tuple(_written_evidence(entry) for entry in one.evidence),
        # What is needed comes first, because the contract has no field that says so.
        missing=tuple(
            _Missing(gap.signal, gap.how_to_get)
            for gap in sorted(one.missing, key=lambda gap: not gap.needed)
        ),
        mitigations=tuple(_Mitigation(action.text, action.safe) for action in one.mitigations),
        next_check=one.next_check,
        runbook=one.runbook,
    )


def _written_evidence(one: Evidence) -> _Evidence:
    return _Evidence(
        signal=one.signal,
        stance=one.stance,
        weight=rounded(one.weight),
        before=rounded(one.before),
        during=rounded(one.during),
        unit=one.unit,
        onset=timestamp(one.onset),
        text=one.text,
    )


def _read(saved: _Verdict) -> Verdict:
    report = saved.report or None
    return Verdict(
        version=saved.version,
        generated_at=_time(saved.generated_at) or math.nan,
        source=tuple(SourceRef(one.kind, one.ref) for one in saved.source),
        baseline=_window(saved.windows.baseline),
        incident=_window(saved.windows.incident),
        summary=saved.summary,
        symptoms=tuple(
            Symptom(one.signal, one.scope, one.before, one.during, one.unit, _time(one.onset))
            for one in saved.symptoms
        ),
        leading=saved.leading,
        assessments=tuple(_assessment(one) for one in saved.assessments),
        timeline=tuple(Moment(_time(one.time) or math.nan, one.signal, one.text) for one in saved.timeline),
        leads=tuple(
            Lead(one.signal, one.labels, one.before, one.during, one.unit, one.text) for one in saved.leads
        ),
        coverage=Coverage(saved.coverage.signals_present, saved.coverage.signals_missing),
        notes=saved.notes,
        impact=report.impact if report else None,
        exhibits=report.exhibits if report else (),
        names=report.names if report else {},
        fired=report.fired if report else (),
        queries=report.queries if report else (),
    )


def _assessment(one: _Assessment) -> Assessment:
    return Assessment(
        id=one.id,
        title=one.title,
        state=one.state,
        confidence=_number(one.confidence),
        rank=one.rank,
        scope=one.scope,
        onset=_time(one.onset),
        explained_share=one.explained_share,
        explained_by=one.explained_by,
        chain=tuple(ChainLink(link.signal, _time(link.onset), link.text) for link in one.chain),
        evidence=tuple(_evidence(entry) for entry in one.evidence),
        missing=tuple(Missing(gap.signal, gap.how_to_get) for gap in one.missing),
        mitigations=tuple(Mitigation(action.text, action.safe) for action in one.mitigations),
        next_check=one.next_check,
        runbook=one.runbook,
    )


def _evidence(one: _Evidence) -> Evidence:
    return Evidence(
        cue="",
        signal=one.signal,
        stance=one.stance,
        degree=1.0 if one.stance is Stance.FOR else 0.0,
        text=one.text,
        before=one.before,
        during=one.during,
        unit=one.unit,
        onset=_time(one.onset),
        weight=_number(one.weight),
    )


def _number(value: Number) -> float:
    return math.nan if value is None else float(value)


def _window(pair: tuple[str, str] | None) -> Window | None:
    return Window(_moment(pair[0]), _moment(pair[1])) if pair else None


def _time(text: str | None) -> float | None:
    return _moment(text) if text else None


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no zone")
    return moment.timestamp()
