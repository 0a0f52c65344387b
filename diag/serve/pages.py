"""What people see: the list of incidents, one incident, a runbook. Every text is escaped by the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from diag.api.reports import report_for
from diag.exhibits import Fired
from diag.model import Verdict
from diag.quantities import clock, day, plain, quantity, span
from diag.renderers import load
from diag.renderers.report.html import render as as_html
from diag.serve.store import Incident

__all__ = ["front", "incident", "runbook", "unknown_alert", "verdict_of"]

_STATES = {"queued": "waits for triage", "running": "being triaged", "done": "", "failed": "no verdict"}


@lru_cache(maxsize=64)
def _loaded(text: bytes) -> Verdict:
    return load(text)


def verdict_of(one: Incident) -> Verdict | None:
    """The verdict, None while there is none."""
    return _loaded(one.question.verdict) if one.question.verdict is not None else None


def front(incidents: Sequence[Incident], waiting: int, total: int, refresh_seconds: int) -> str:
    """The list; ``total``: how many alerts there are, listed or not."""
    rows = [_row(one) for one in incidents]
    return _rendered(
        "front.html.j2", rows=rows, waiting=waiting, total=total, refresh_seconds=refresh_seconds
    )


def _row(one: Incident) -> dict[str, Any]:
    verdict = verdict_of(one)
    lead = next((a for a in verdict.assessments if a.id == verdict.leading), None) if verdict else None
    since = one.alert.starts_at
    return {
        "id": one.id,
        "name": plain(one.alert.name) or "alert",
        "since": f"{day(since)} {clock(since)}",
        "firing": one.alert.firing,
        "lasted": span(round(one.alert.ends_at - since)) if one.alert.ends_at is not None else "",
        "where": plain(one.alert.labels.get("instance", "")),
        "cause": verdict.leading or "nothing wrong" if verdict else "",
        "confidence": quantity(lead.confidence, "ratio") if lead else "",
        "summary": plain(verdict.summary) if verdict else _STATES[one.question.state],
        "error": plain(one.question.error),
    }


def incident(one: Incident, refresh_seconds: int) -> str:
    """One incident: its report, asking for itself anew while the alert fires."""
    verdict = verdict_of(one)
    again = refresh_seconds if one.alert.firing or one.question.state in ("queued", "running") else 0
    if verdict is None:
        return _rendered("waiting.html.j2", row=_row(one), refresh_seconds=again)
    state = "firing" if one.alert.firing else "resolved"
    fired = Fired(one.alert.name or "alert", one.alert.starts_at, one.alert.ends_at)
    return _drawn(one.question.verdict or b"", fired, state, again)


@lru_cache(maxsize=32)
def _drawn(text: bytes, fired: Fired, state: str, refresh_seconds: int) -> str:
    verdict = _loaded(text)
    report = report_for(verdict, [fired])
    return as_html(
        report, version=verdict.version, state=state, refresh_seconds=refresh_seconds, runbooks="/runbooks/"
    )


def unknown_alert(wanted: Mapping[str, str]) -> str:
    """What a link leads to before its alert has arrived."""
    labels = [f"{plain(k)}={plain(v)}" for k, v in wanted.items()]
    return _rendered("unknown.html.j2", labels=labels)


def runbook(id: str, text: str) -> str:
    """A runbook as it was written: Markdown reads well as it is."""
    return _rendered("runbook.html.j2", id=id, text=text)


def _rendered(template: str, /, **values: Any) -> str:
    text: str = _environment().get_template(template).render(**values)
    return text


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("diag.serve"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
