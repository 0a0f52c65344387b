"""What the service tells a Prometheus: its findings, for annotations on dashboards, and how it fares
itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from diag.model import State
from diag.serve.pages import verdict_of
from diag.serve.store import Incident
from diag.serve.worker import Counted

__all__ = ["exposition"]

_MOST_FINDINGS = 50
_LONGEST = 128


def exposition(incidents: Sequence[Incident], waiting: int, firing: int, counted: Counted) -> str:
    """Prometheus text for the newest ``incidents``, and for ``firing`` of all alerts. A finding is there
    while its alert fires; labels are bounded in number and length."""
    return "\n".join((*_findings(incidents), *_own(waiting, firing, counted))) + "\n"


def _findings(incidents: Iterable[Incident]) -> Iterator[str]:
    yield "# HELP llmdiag_triage_finding Confidence of the leading cause of an alert that fires, 0 to 1."
    yield "# TYPE llmdiag_triage_finding gauge"
    told: set[tuple[str, str]] = set()
    for one in incidents:
        verdict = verdict_of(one) if one.alert.firing else None
        if verdict is None or verdict.leading is None or len(told) >= _MOST_FINDINGS:
            continue
        lead = next((a for a in verdict.assessments if a.id == verdict.leading), None)
        if lead is None:
            continue
        where = lead.scope.get("instances", ()) or (one.alert.labels.get("instance", ""),)
        for instance in where[:4]:
            if (verdict.leading, instance) in told:
                continue
            told.add((verdict.leading, instance))
            state = lead.state.value if lead.state in (State.SUPPORTED, State.UNDECIDED) else "undecided"
            labels = {
                "verdict": verdict.leading,
                "state": state,
                "instance": instance,
                "alertname": one.alert.name,
            }
            yield f"llmdiag_triage_finding{{{_labels(labels)}}} {lead.confidence:.4g}"


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items())


def _escaped(value: str) -> str:
    return value[:_LONGEST].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _own(waiting: int, firing: int, counted: Counted) -> Iterator[str]:
    rows = (
        ("llmdiag_triage_duration_seconds_sum", "counter", "Seconds spent on triages.", counted.seconds),
        ("llmdiag_triage_duration_seconds_count", "counter", "Triages.", counted.done + counted.failed),
        ("llmdiag_triage_failures_total", "counter", "Triages that ended without a verdict.", counted.failed),
        (
            "llmdiag_message_failures_total",
            "counter",
            "Messages that did not arrive.",
            counted.messages_failed,
        ),
        ("llmdiag_triage_waiting", "gauge", "Questions that wait for a triage.", waiting),
        ("llmdiag_alerts_firing", "gauge", "Alerts that fire.", firing),
    )
    for name, kind, text, value in rows:
        family = name.removesuffix("_sum").removesuffix("_count") if "duration" in name else name
        if not name.endswith("_count") or "duration" not in name:
            yield f"# HELP {family} {text}"
            yield f"# TYPE {family} {'summary' if 'duration' in name else kind}"
        yield f"{name} {value:.10g}"
