"""How to see again what a verdict tells: the PromQL behind its signals, over each producer's own metrics."""

from __future__ import annotations

from collections.abc import Iterator

from diag.engines import engine as engine_called
from diag.engines.registry import Definition
from diag.errors import SignalError
from diag.exhibits import Query
from diag.model import Case, Stance, Verdict
from diag.signals.promql import write

__all__ = ["queries_of"]

_LOOK_BACK_SECONDS = 300.0
_MOST = 12


def queries_of(case: Case, verdict: Verdict) -> tuple[Query, ...]:
    """One a signal and producer: what users feel, then the leading cause's chain and evidence. Signals of
    request records or logs have none."""
    found: dict[str, Query] = {}
    for signal in dict.fromkeys(_told(verdict)):
        for producer in dict.fromkeys(one.producer for one in case.of(signal)):
            text = _promql(producer, signal, case.look_back_seconds or _LOOK_BACK_SECONDS)
            if text is not None:
                found.setdefault(text, Query(signal, producer, text))
    return tuple(found.values())[:_MOST]


def _told(verdict: Verdict) -> Iterator[str]:
    yield from (one.signal for one in verdict.symptoms)
    lead = next((one for one in verdict.assessments if one.id == verdict.leading), None)
    if lead is not None:
        yield from (link.signal for link in lead.chain)
        yield from (one.signal for one in lead.evidence if one.stance is Stance.FOR)


def _promql(producer: str, signal: str, look_back_seconds: float) -> str | None:
    try:
        definition = engine_called(producer).signals.get(signal)
    except SignalError:  # a log, or a fact
        return None
    return write(definition.expr, look_back_seconds) if isinstance(definition, Definition) else None
