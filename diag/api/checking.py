"""Coverage: what a case holds, what it lacks, and what can be judged on it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from diag.model import Assessment, Case, Join, State, Verdict, Window
from diag.quantities import clock, day, span
from diag.renderers.checked import Assessable, Checked, Lacking, Present
from diag.signals.vocabulary import SIGNALS

__all__ = ["checked"]


def checked(case: Case, verdict: Verdict) -> Checked:
    """Coverage of ``case``. What can be judged is read off ``verdict``, so that the two never disagree."""
    return Checked(
        sources=tuple(f"{one.kind} {one.ref}" for one in case.sources),
        window=_window(case.window),
        present=_present(case),
        lacking=_lacking(case),
        assessable=tuple(
            Assessable(
                one.id,
                one.state is not State.NOT_ASSESSABLE,
                _needs(one) if one.state is State.NOT_ASSESSABLE else (),
            )
            for one in sorted(verdict.assessments, key=lambda one: one.id)
            if one.id != "unknown"
        ),
        joins=tuple(_join(one) for one in case.joins),
        requests=None if case.requests is None else len(case.requests),
        notes=case.notes,
    )


def _needs(one: Assessment) -> tuple[str, ...]:
    needed = [gap for gap in one.missing if gap.needed] or one.missing
    return tuple(dict.fromkeys(gap.how_to_get for gap in needed))


def _window(window: Window) -> str:
    start = f"{day(window.start)} {clock(window.start)}"
    return f"{start} to {clock(window.end)} UTC ({span(window.seconds)})"


def _present(case: Case) -> tuple[Present, ...]:
    rows = []
    for signal, series in case.series.items():
        alive = Counter(one.producer or "derived" for one in series if np.isfinite(one.values).any())
        rows += [Present(signal, producer, count) for producer, count in sorted(alive.items())]
    order = {name: position for position, name in enumerate(SIGNALS)}
    return tuple(sorted(rows, key=lambda row: (row.producer, order.get(row.signal, len(order)), row.signal)))


def _lacking(case: Case) -> tuple[Lacking, ...]:
    groups: dict[str, list[str]] = {}
    for gap in case.gaps:
        if not any(np.isfinite(one.values).any() for one in case.of(gap.signal)):
            groups.setdefault(gap.how_to_get or gap.reason, []).append(gap.signal)
    return tuple(Lacking(tuple(dict.fromkeys(names)), how) for how, names in groups.items())


def _join(one: Join) -> str:
    if one.node is None:
        return f"{one.instance}: no node found; a shared node, pod or host label would join them"
    gpus = f", GPUs {', '.join(one.gpus)}" if one.gpus else ""
    return f"{one.instance}: node {one.node}{gpus} (by {one.how})"
