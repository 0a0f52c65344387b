"""From judged hypotheses to the verdict: order, words, timeline, leads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diag.detectors.episodes import symptom_of
from diag.detectors.lasting import bad_throughout
from diag.detectors.view import View
from diag.exhibits import Fired
from diag.hypotheses import UNKNOWN
from diag.model import (
    Assessment,
    Coverage,
    Evidence,
    Lead,
    Moment,
    Stance,
    State,
    Symptom,
    Verdict,
)
from diag.quantities import quantity
from diag.signals import SIGNALS
from diag.triage.chain import WORDS, chain_of
from diag.triage.exhibits import exhibits_of
from diag.triage.impact import impact_of
from diag.triage.rank import SUPPORT, Judged, leader, unknown_confidence

__all__ = ["compose"]

_SYMPTOMS = 6
_LEADS = 6
_SESSIONS = 2000
_APART_SECONDS = 300.0
_NOT_LEADS = frozenset({"engine_start_time_seconds", "scrape_seconds", "gpu_xid_code"})


def compose(view: View, judged: Sequence[Judged], *, now: float, version: str) -> Verdict:
    """Assemble the verdict; ``leading`` is None when nothing is wrong, "unknown" when nothing fits."""
    lead = leader(judged, view)
    lost = view.symptomatic and lead is None
    ordered = [j for j in judged if j is lead] + [j for j in judged if j is not lead]
    assessments = [_assessment(j, view, rank + 1) for rank, j in enumerate(ordered)]
    unknown = _unknown(view, judged, lead)
    assessments.insert(_place(unknown, assessments, lost), unknown)
    ranked = tuple(_ranked(a, i + 1) for i, a in enumerate(assessments))
    leading = "unknown" if lost else (lead.id if lead else None)
    return Verdict(
        version=version,
        generated_at=now,
        source=view.case.sources,
        baseline=view.spans.baseline,
        incident=view.spans.incident if view.symptomatic or lead else None,
        summary=_summary(view, lead, judged, lost),
        symptoms=_symptoms(view),
        leading=leading,
        assessments=ranked,
        timeline=_timeline(view, ranked, leading),
        leads=_leads(view, lead) if lost or (lead is not None and lead.state is not State.SUPPORTED) else (),
        coverage=_coverage(view),
        notes=(*view.case.notes, *_joins(view)),
        impact=impact_of(view),
        exhibits=exhibits_of(view, lead),
        names=_names(view),
        fired=_fired(view),
    )


def _assessment(j: Judged, view: View, rank: int) -> Assessment:
    card = j.hypothesis.card
    evidence = tuple(sorted(j.evidence, key=lambda e: -abs(e.weight)))
    onset = None
    chain = chain_of(j, view) if view.symptomatic and j.driven else ()
    if j.state in (State.SUPPORTED, State.UNDECIDED) and j.driven:
        own = [e.onset for e in evidence if e.onset is not None and e.weight > 0]
        later = j.explained_by is not None or not view.symptomatic
        onset = min(own, default=view.onset if view.symptomatic else None) if later else view.onset
    scope = dict(j.scope)
    if j.state is State.SUPPORTED and view.affected and "instances" not in scope:
        scope["instances"] = view.affected
    return Assessment(
        j.id, card.title, j.state, round(j.confidence, 3), rank, scope, onset, j.explained, j.explained_by,
        chain, evidence, tuple(j.missing), card.mitigations, card.next_check, f"runbooks/{j.id}.md",
    )  # fmt: skip


def _place(unknown: Assessment, others: Sequence[Assessment], lost: bool) -> int:
    """First when nothing else fits, last when something fits well, else behind what is supported."""
    if lost:
        return 0
    if unknown.state is State.RULED_OUT:
        return len(others)
    supported = sum(1 for a in others if a.state is State.SUPPORTED)
    return max(supported, 1)


def _ranked(a: Assessment, rank: int) -> Assessment:
    from dataclasses import replace

    return replace(a, rank=rank)


def _unknown(view: View, judged: Sequence[Judged], lead: Judged | None) -> Assessment:
    """ "None of ours" as one more candidate."""
    lost = view.symptomatic and lead is None
    confidence = unknown_confidence(judged, view)
    state = State.SUPPORTED if lost and confidence >= SUPPORT else State.UNDECIDED
    evidence: tuple[Evidence, ...] = ()
    if not view.symptomatic:
        state, text = State.RULED_OUT, "there is no symptom to explain"
    elif lead is not None and lead.state is State.SUPPORTED and confidence < 0.05:
        state, text = State.RULED_OUT, f"{lead.id} accounts for what is seen"
    if state is State.RULED_OUT:
        evidence = (Evidence("explained", "ttft_seconds_mean", Stance.AGAINST, 0.0, text, weight=-3.0),)
    return Assessment(
        id="unknown",
        title=UNKNOWN.title,
        state=state,
        confidence=round(confidence, 3),
        rank=0,
        scope={},
        onset=view.onset if lost else None,
        explained_share=None,
        explained_by=None,
        chain=(),
        evidence=evidence,
        missing=(),
        mitigations=UNKNOWN.mitigations,
        next_check=UNKNOWN.next_check,
        runbook="runbooks/unknown.md",
    )


def _summary(view: View, lead: Judged | None, judged: Sequence[Judged], lost: bool) -> str:
    if not view.symptomatic:
        if lead is None:
            lasting = bad_throughout(view)
            if lasting:
                return f"No incident begins in this window, but it is no quiet time: {lasting}."
            return "No incident in this window: nothing that users feel got worse."
        return f"{lead.hypothesis.card.title}; nobody is slower for it yet."
    felt = _felt(view)
    if lost:
        return f"{felt}, and no known cause explains it with the signals at hand."
    assert lead is not None
    others = [j for j in judged if j is not lead and j.state is State.SUPPORTED and j.explained_by is None]
    also = f", and {_lower(others[0].hypothesis.card.title)}" if others else ""
    title = lead.named or _lower(lead.hypothesis.card.title)
    confidence = quantity(round(lead.confidence, 3), "ratio")  # as the assessment says it
    if lead.state is not State.SUPPORTED:
        return f"{felt}; best guess (confidence {confidence}): {title}{also}."
    return f"{felt}: {title} (confidence {confidence}){also}."


def _lower(title: str) -> str:
    first = title.split(maxsplit=1)[0]
    return title if len(first) > 1 and first.isupper() else title[0].lower() + title[1:]


_FELT = {
    "standstill_ratio": "The engine holds requests and serves none",
    "unreachable_ratio": "An engine does not answer for {b} of the time",
    "ttft_seconds_p95": "The slowest first tokens went from {a} to {b}",
    "ttft_seconds_p50": "First tokens went from {a} to {b}",
    "ttft_seconds_mean": "First tokens went from {a} to {b} on average",
    "e2e_seconds_mean": "Answers went from {a} to {b} on average",
    "inter_token_seconds_mean": "Time between tokens went from {a} to {b}",
    "gateway_wait_seconds_mean": "Answers waited {b} in the gateway (before: {a})",
    "gateway_wait_seconds_p95": "The slowest answers waited {b} in the gateway (before: {a})",
    "aborted_ratio": "Clients cut {b} of their requests (before: {a})",
    "unfinished_ratio": "{b} of answered requests never finished (before: {a})",
    "error_ratio": "{b} of requests fail (before: {a})",
    "http_errors_per_second": "The server answers {b} with an error (before: {a})",
    "rejected_requests_per_second": "{b} are refused at admission (before: {a})",
}


def _felt(view: View) -> str:
    """The symptom that says most to a manager: waits first, then losses, then speed."""
    order = list(_FELT)
    groups = (order[:1], order[2:5], order[7:9], order[1:2], order[9:12], order[5:7], order[12:])
    for names in groups:
        seen = [e for e in view.episodes if e.course.signal in names]
        if seen:
            e = max(seen, key=lambda x: x.strength)
            a, b = quantity(e.before, e.course.unit), quantity(e.during, e.course.unit)
            return _FELT[e.course.signal].format(a=a, b=b)
    return "The service got worse"


def _symptoms(view: View) -> tuple[Symptom, ...]:
    """Who feels what: cohorts first, then each symptom once, where it is worst. What clients recorded
    goes before what the engine measured of the same."""
    best: dict[str, Symptom] = {}
    clients = [e for e in view.episodes if "cohort" in e.course.scope]
    for e in [*clients, *view.episodes]:
        best.setdefault(e.course.signal, symptom_of(e))
    if len(view.affected) > 1 or view.spared:
        slow = [
            e
            for e in view.episodes
            if e.course.scope.get("instance") and e.course.signal == "ttft_seconds_p95"
        ]
        best.update({f"{e.course.scope['instance']}": symptom_of(e) for e in slow[::-1]})
    return (*_cohorts(view), *best.values())[:_SYMPTOMS]


def _cohorts(view: View) -> list[Symptom]:
    """Sessions that grew against all others: the contrast that tells who is hit."""
    work = view.workload
    if work is None or work.growth is None or not view.symptomatic:
        return []
    if work.findings["session_growth_ratio"].effect < 1:
        return []
    r = work.requests
    grown = set(work.growth.sessions)
    codes = [code for code, name in enumerate(r.sessions) if name in grown]
    old = np.isin(r.session, codes)
    found: list[Symptom] = []
    for name, chosen in (("old_sessions", old), ("other_sessions", ~old)):
        a, b = (r.waited[chosen & w] for w in (work.baseline, work.incident))
        a, b = a[np.isfinite(a)], b[np.isfinite(b)]
        if len(a) >= 3 and len(b) >= 3:
            found.append(
                Symptom(
                    "ttft_seconds_p95",
                    {"cohort": name},
                    float(np.quantile(a, 0.95)),
                    float(np.quantile(b, 0.95)),
                    "seconds",
                    view.onset,
                )
            )
    return found


def _timeline(view: View, assessments: Sequence[Assessment], leading: str | None) -> tuple[Moment, ...]:
    moments = [Moment(c.time, c.signal, c.text) for c in view.changes if view.case.window.contains(c.time)]
    moments += [
        Moment(
            o.window.start,
            "target_up",
            f"{o.target} stopped answering scrapes for {quantity(o.window.seconds, 'seconds')}",
        )
        for o in view.outages
    ]
    if view.symptomatic:
        first = view.episodes[0]
        meaning = SIGNALS[first.course.signal].meaning if first.course.signal in SIGNALS else ""
        words = WORDS.get(first.course.signal) or meaning.split(";")[0] or first.course.signal
        text = f"{words}: leaves its usual level"
        moments.append(Moment(view.onset, first.course.signal, text))
    for a in assessments:
        if a.id == leading:
            moments += [
                Moment(link.onset, link.signal, link.text) for link in a.chain if link.onset is not None
            ]
    return tuple(sorted(moments, key=lambda m: (m.time, m.signal, m.text)))


def _fired(view: View) -> tuple[Fired, ...]:
    """Alerts on any of several things at once are told once, by the first."""
    known = sorted(view.case.facts_named("alert"), key=lambda fact: (fact.since or 0.0, fact.value))
    told: list[Fired] = []
    for fact in known:
        last = next((one for one in reversed(told) if one.alert == fact.value), None)
        if last is None or (fact.since or 0.0) - (last.time or 0.0) > _APART_SECONDS:
            told.append(Fired(fact.value, fact.since, fact.until))
    return tuple(told)


def _leads(view: View, lead: Judged | None) -> tuple[Lead, ...]:
    """The largest movers, worst first, for whoever has to go on; not those the guess stands on."""
    told = {*(e.signal for e in lead.evidence), *lead.hypothesis.card.chain} if lead is not None else set()
    movers = [f for found in view.each.values() for f in found if f.moved and f.signal not in _NOT_LEADS]
    movers += [f for f in (view.workload.findings.values() if view.workload else ()) if f.moved]
    leads = []
    movers = [f for f in movers if f.signal not in told]
    for f in sorted(movers, key=lambda f: (-abs(f.effect), f.signal))[:_LEADS]:
        meaning = SIGNALS[f.signal].meaning
        leads.append(
            Lead(
                f.signal,
                dict(f.labels),
                f.before,
                f.during,
                f.unit,
                f"{meaning}: {quantity(f.before, f.unit)} → {quantity(f.during, f.unit)}",
            )
        )
    return tuple(leads)


def _coverage(view: View) -> Coverage:
    present = sum(1 for name in SIGNALS if view.case.of(name))
    present += len(view.workload.findings) if view.workload else 0
    return Coverage(present, len(SIGNALS) - present)


def _names(view: View) -> dict[str, tuple[str, ...]]:
    """Who occurs in the case, so that whoever passes the verdict on can hide them."""
    joins = view.case.joins
    requests = view.workload.requests if view.workload is not None else None
    found = {
        "instances": tuple(sorted(view.engines)),
        "nodes": tuple(sorted({j.node for j in joins if j.node})),
        "tenants": requests.tenants if requests is not None else (),
        "sessions": requests.sessions[:_SESSIONS] if requests is not None else (),
    }
    return {kind: names for kind, names in found.items() if names}


def _joins(view: View) -> tuple[str, ...]:
    return tuple(
        f"no label joins {j.instance} to a node: host evidence is not attributed to it"
        for j in view.case.joins if not j.how and view.each.get("node_cpu_busy_ratio")
    )  # fmt: skip
