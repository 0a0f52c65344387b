"""Judge one case as an operator would get it, and let every rival have a go at the same data."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from diag.accuracy.baselines import BASELINES, FSE_BARO, groups, ranked_signals
from diag.accuracy.columns import Columns, columns_of
from diag.accuracy.label import Kind, Label
from diag.accuracy.reading import NOW
from diag.accuracy.row import Answer, Held, Rival, Row
from diag.accuracy.thresholds import checked
from diag.detectors.view import View
from diag.hypotheses import HYPOTHESES
from diag.model import Assessment, Case, Verdict
from diag.triage.compose import compose
from diag.triage.rank import Judged, judge
from diag.triage.run import look
from diag.triage.weights import WEIGHTS

__all__ = ["CHECKER", "Clock", "Task", "judged", "rivals_without"]

CHECKER = "threshold checker"
_VERSION = "accuracy"


class Clock:
    """CPU seconds of this process by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Charge the block to ``what``."""
        began = time.process_time()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.process_time() - began


class Task:
    """What is to be done with a case. ``held_out``: judge again without the true cause's room."""

    def __init__(self, *, rivals: Sequence[str] = (*BASELINES, CHECKER), held_out: bool = True) -> None:
        self.rivals = tuple(rivals)
        self.held_out = held_out


def rivals_without(baro: bool) -> tuple[str, ...]:
    """All rivals, or all but the two that need fse-baro."""
    return tuple(name for name in (*BASELINES, CHECKER) if baro or name not in FSE_BARO)


def judged(
    case: Case, label: Label, *, name: str, family: str, digest: str, task: Task, clock: Clock | None = None
) -> Row:
    """The row of ``case``; the label is used only to split rivals at the true onset, to choose the room that
    is taken away, and to be kept for scoring."""
    clock = clock or Clock()
    with clock.of("triage"):
        view = look(case)
        hypotheses = judge(view)
        verdict = compose(view, hypotheses, now=NOW, version=_VERSION)
    held = None
    if task.held_out and label.kind is Kind.CAUSE:
        with clock.of("held out"):
            held = _held(view, label)
    with clock.of("rivals"):
        rivals = _rivals(view, label, name, task.rivals)
    lead = next((one for one in verdict.assessments if one.id == verdict.leading), None)
    return Row(
        name=name,
        family=family,
        digest=digest,
        label=label,
        leading=verdict.leading,
        symptom=view.symptomatic,
        answers=_answers(verdict, hypotheses),
        scope={kind: tuple(who) for kind, who in lead.scope.items()} if lead else {},
        onset=_onset(verdict, lead),
        engines=tuple(sorted(view.engines)),
        step_seconds=case.step_seconds,
        summary=verdict.summary,
        held=held,
        rivals=rivals,
        seconds=dict(clock.seconds),
    )


def _onset(verdict: Verdict, lead: Assessment | None) -> float | None:
    if lead is not None and lead.onset is not None:
        return lead.onset
    return verdict.incident.start if verdict.incident else None


def _answers(verdict: Verdict, hypotheses: Sequence[Judged]) -> tuple[Answer, ...]:
    by_id = {one.id: one for one in hypotheses}
    return tuple(_answer(one, by_id.get(one.id)) for one in verdict.assessments)


def _answer(one: Assessment, known: Judged | None) -> Answer:
    if known is None:
        return Answer(one.id, one.state, one.confidence)
    table = WEIGHTS[one.id]
    votes = tuple((table[e.cue].group or e.cue, round(e.weight, 4)) for e in known.evidence if e.cue in table)
    return Answer(
        one.id, one.state, one.confidence, round(known.own, 4), known.driven, known.hypothesis.trigger,
        bool(one.missing), one.explained_by is not None, votes,
    )  # fmt: skip


def _held(view: View, label: Label) -> Held:
    """The same case with every right answer's room gone: nobody had thought of this cause."""
    gone = {*label.causes, *(name for name in label.accept if name)}
    fewer = [one for one in HYPOTHESES if one.card.id not in gone]
    verdict = compose(view, judge(view, fewer), now=NOW, version=_VERSION)
    sure = next((one.confidence for one in verdict.assessments if one.id == verdict.leading), 0.0)
    return Held(verdict.leading, sure)


def _rivals(view: View, label: Label, name: str, methods: Sequence[str]) -> dict[str, Rival]:
    case = view.case
    middle = case.window.start + case.window.seconds / 2
    ours = columns_of(case, view.onset if view.symptomatic else middle)
    truth = label.onset if label.onset is not None else middle
    true = columns_of(case, truth)
    found: dict[str, Rival] = {}
    for method in methods:
        if method == CHECKER:
            fired = checked(case)
            found[method] = Rival(fired, fired)
        else:
            found[method] = Rival(_ranked(method, ours, name), _ranked(method, true, name))
    return found


def _ranked(method: str, columns: Columns, name: str) -> tuple[tuple[str, ...], ...]:
    return groups(ranked_signals(method, columns, name)) if columns.before else ()
