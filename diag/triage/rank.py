"""Weigh, explain away, and give each hypothesis one of four states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from diag.detectors.cues import Explained, Named, Reach
from diag.detectors.view import View
from diag.hypotheses import HYPOTHESES
from diag.hypotheses.registry import Hypothesis
from diag.model import Evidence, Missing, Stance, State
from diag.signals import SIGNALS
from diag.triage.calibration import CALIBRATION
from diag.triage.weights import WEIGHTS

__all__ = ["SUPPORT", "Judged", "judge", "leader", "unknown_confidence"]

_CLIP = math.log(60)
SUPPORT = 0.80
_OWN = math.log(5)
_RULED_OUT = -3.0
_SWITCHED = "switched"
_MORE_THAN_UNKNOWN = 3.0  # times as likely as none of ours: then the best of ours is the guess
_LIKELY = 0.5  # a cause this likely explains what it brings about, sure or not
_UNKNOWN = CALIBRATION.unknown(len(HYPOTHESES))
_LATE = math.log(0.3)


@dataclass(slots=True)
class Judged:
    """One hypothesis with its weighed evidence; ``own``: its log likelihood ratio by itself;
    ``as_consequence``: the same, but what speaks only against its being the root is left aside."""

    hypothesis: Hypothesis
    evidence: list[Evidence] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    scope: dict[str, tuple[str, ...]] = field(default_factory=dict)
    explained: float | None = None
    named: str = ""
    own: float = 0.0
    as_consequence: float = 0.0
    confidence: float = 0.0
    state: State = State.UNDECIDED
    explained_by: str | None = None

    @property
    def id(self) -> str:
        """The hypothesis' id."""
        return self.hypothesis.card.id

    @property
    def assessable(self) -> bool:
        """Whether the signals it cannot do without were there."""
        return not any(m.needed for m in self.missing)

    @property
    def triggers(self) -> bool:
        """Whether it can begin an incident: a state that may last for ever does when it was switched on."""
        return self.hypothesis.trigger or any(
            e.cue == _SWITCHED and e.stance is Stance.FOR for e in self.evidence
        )

    @property
    def driven(self) -> bool:
        """Whether the cue that makes the mechanism possible came true."""
        table = WEIGHTS[self.id]
        return any(e.stance is Stance.FOR and e.cue in table and table[e.cue].driver for e in self.evidence)


def judge(view: View, hypotheses: Sequence[Hypothesis] = HYPOTHESES) -> list[Judged]:
    """All ``hypotheses``, most convincing first (leader, other roots, consequences, then the rest)."""
    judged = [_examine(h, view) for h in hypotheses]
    by_id = {j.id: j for j in judged}
    for j in judged:
        j.confidence = _confidence(j, judged, view)
    for j in judged:
        j.state = _state(j, view)
    _explain_away(by_id)
    return sorted(judged, key=_order)


def _examine(hypothesis: Hypothesis, view: View) -> Judged:
    judged = Judged(hypothesis)
    for group in hypothesis.needs:
        if not any(_present(name, view) for name in group):
            judged.missing.append(Missing(group[0].partition(":")[2] or group[0], _how(group), needed=True))
    if judged.assessable:
        for item in hypothesis.examine(view):
            match item:
                case Evidence():
                    judged.evidence.append(_weigh(judged.id, item))
                case Missing():
                    judged.missing.append(item)
                case Explained():
                    judged.explained = max(item.share, judged.explained or 0.0)
                case Named():
                    judged.named = item.text
                case Reach():
                    judged.scope.update({k: v for k, v in item.scope.items() if v})
        if not judged.evidence:
            judged.missing.append(Missing(hypothesis.needs[0][0], _how(hypothesis.needs[0]), needed=True))
    judged.own = _own(judged, view)
    judged.as_consequence = _own(judged, view, root=False)
    return judged


def _present(name: str, view: View) -> bool:
    kind, _, rest = name.partition(":")
    if kind == "fact":
        return any(True for _ in view.case.facts_named(rest))
    if kind == "event":
        return any(e.marked if rest == "any" else e.kind == rest for e in view.case.events)
    if view.finding(name) is not None or view.each.get(name):
        return True
    span = view.spans.incident
    return any(np.isfinite(series.within(span)).any() for series in view.case.of(name))


def _how(group: Sequence[str]) -> str:
    for name in group:
        if name in SIGNALS:
            return SIGNALS[name].absence
    return "the engine's cache_config_info, its start-up log (--log FILE) or --events FILE would tell"


def _weigh(id: str, evidence: Evidence) -> Evidence:
    """Virtual evidence (Pearl, Probabilistic Reasoning in Intelligent Systems, 1988, ch. 2): a cue that is
    true to a degree weighs its two likelihoods by it, so that one half says nothing either way."""
    weight, degree = WEIGHTS[id][evidence.cue], evidence.degree
    otherwise = (1 - weight.when_false) / (weight.when_true - weight.when_false)
    given = weight.when_true * otherwise
    true = degree * given + (1 - degree) * (1 - given)
    false = degree * otherwise + (1 - degree) * (1 - otherwise)
    return replace(evidence, weight=math.log(true / false))


def _own(judged: Judged, view: View, *, root: bool = True) -> float:
    """Sum over groups of their votes, each clipped; lateness and reach of explanation count."""
    table = WEIGHTS[judged.id]
    groups: dict[str, list[float]] = {}
    for e in judged.evidence:
        if table[e.cue].root and not root and e.weight < 0:
            continue
        groups.setdefault(table[e.cue].group or e.cue, []).append(e.weight)
    total = sum(max(-_CLIP, min(_CLIP, _vote(weights))) for weights in groups.values())
    total += _timing(judged, view)
    if judged.explained is not None and judged.triggers:
        total += math.log(2) * max(-1.5, min(1.0, 4 * (judged.explained - 0.35)))
    return total


def _vote(weights: Sequence[float]) -> float:
    """The strongest member, and of the others what calibration grants them."""
    strongest = max(weights, key=abs)
    return strongest + CALIBRATION.agreement * (sum(weights) - strongest)


def _timing(judged: Judged, view: View) -> float:
    """A driver that moves well after the symptom is no cause."""
    if not view.symptomatic:
        return 0.0
    table = WEIGHTS[judged.id]
    onsets = [
        e.onset
        for e in judged.evidence
        if e.stance is Stance.FOR and e.onset is not None and table[e.cue].driver
    ]
    if not onsets:
        return 0.0
    slack = max(2 * view.case.step_seconds + view.spans.look_back_seconds, 0.25 * view.spans.incident.seconds)
    return _LATE if min(onsets) > view.onset + slack else 0.0


def _confidence(judged: Judged, everyone: Sequence[Judged], view: View) -> float:
    """Share of belief against its rivals and "none of ours"; kin (cause and consequence) are no rivals."""
    if not judged.assessable or (not view.symptomatic and judged.id != "telemetry_fault"):
        return 0.0
    rivals = [r.own for r in everyone if r is not judged and r.assessable and _rivals(judged, r)]
    floor = [_UNKNOWN, *rivals] if judged.triggers else [_UNKNOWN]
    return _belief(judged.own, floor)


def _belief(own: float, others: Sequence[float]) -> float:
    """Softmax share of ``own`` at the calibrated temperature."""
    everyone = [own, *others]
    top = max(everyone)
    parts = [math.exp((x - top) / CALIBRATION.temperature) for x in everyone]
    return parts[0] / sum(parts)


def _rivals(a: Judged, b: Judged) -> bool:
    """A cause that brings the other about is no rival of it, if both came true by themselves."""
    if not b.triggers:
        return False
    kin = b.id in a.hypothesis.card.leads_to or a.id in b.hypothesis.card.leads_to
    return not (kin and a.driven and b.driven)


def _state(judged: Judged, view: View) -> State:
    if not judged.assessable:
        return State.NOT_ASSESSABLE
    convinced = judged.confidence >= SUPPORT and judged.own > _OWN and judged.driven
    if convinced:
        return State.SUPPORTED
    # Without a quiet time nothing is excluded by having stayed as it was.
    decisive = [e for e in judged.evidence if e.decisive and not (view.bad_before and e.before is not None)]
    if judged.own < _RULED_OUT and decisive:
        return State.RULED_OUT
    return State.UNDECIDED


def _explain_away(by_id: Mapping[str, Judged]) -> None:
    """A likely cause explains the consequences on its card that came true; the first parent wins. One that
    is only likely explains nothing that has clearly more for itself."""
    for parent in sorted(by_id.values(), key=lambda j: -j.own):
        likely = parent.driven and parent.confidence >= _LIKELY and parent.own > _OWN
        if parent.state is not State.SUPPORTED and not likely:
            continue
        for child_id in parent.hypothesis.card.leads_to:
            child = by_id.get(child_id)
            if child is None or not child.driven or child.explained_by is not None or child is parent:
                continue
            if parent.state is State.SUPPORTED or child.own < parent.own + _OWN:
                _consequence(child, parent)


def _consequence(child: Judged, parent: Judged) -> None:
    """Whether it really happens is then a question of its own, apart from whether it is the root, and apart
    from how often nobody had thought of a cause: one in six did before looking (``_OWN``)."""
    child.explained_by = parent.id
    child.confidence = _belief(child.as_consequence, [_OWN])
    if child.confidence >= SUPPORT and child.as_consequence > _OWN:
        child.state = State.SUPPORTED
    elif child.state is State.SUPPORTED:
        child.state = State.UNDECIDED


_STATES = {State.SUPPORTED: 0, State.UNDECIDED: 1, State.NOT_ASSESSABLE: 2, State.RULED_OUT: 3}


def _order(j: Judged) -> tuple[int, int, int, float, str]:
    strength = j.own if j.explained_by is None else j.as_consequence
    return (_STATES[j.state], j.explained_by is not None, not j.triggers, -strength, j.id)


def leader(judged: Sequence[Judged], view: View) -> Judged | None:
    """The root to name, or None: nothing wrong, or nothing of ours (see ``unknown_confidence``)."""
    if not view.symptomatic:
        return next((j for j in judged if j.state is State.SUPPORTED and j.id == "telemetry_fault"), None)
    roots = [j for j in judged if j.assessable and j.driven and j.triggers and j.explained_by is None]
    best = max(roots, key=lambda j: (j.state is State.SUPPORTED, j.confidence, j.own), default=None)
    if best is None or best.state is State.RULED_OUT:
        return None
    # What is less likely than not is told behind "unknown", unless two of ours share what belief there is.
    shared = best.confidence > _MORE_THAN_UNKNOWN * unknown_confidence(judged, view)
    return best if best.confidence >= _LIKELY or shared else None


def unknown_confidence(judged: Sequence[Judged], view: View) -> float:
    """How much belief is left for "none of ours"."""
    if not view.symptomatic:
        return 0.0
    own = [j.own for j in judged if j.assessable and j.triggers]
    return _belief(_UNKNOWN, own)
