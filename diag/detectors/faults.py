"""Faults that a card or its driver reports, as events: a counter that rests at any number is none.

Xid codes follow NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors): memory, bus, link and firmware
faults are the card's own, page faults and bad instructions are mostly the program's, and 45 only
tells that a channel was cleaned up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from diag.detectors.gpus import gpu_name
from diag.detectors.places import series_here
from diag.detectors.view import View
from diag.model import Series

__all__ = ["Fault", "faults_of", "watched"]

_HARD = frozenset({
    38, 46, 48, 54, 56, 57, 58, 61, 62, 63, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 121, 122, 123, 136,
    137, 140, 143, 145, 149, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 171,
})  # fmt: skip
_CLEAN_UP = frozenset({43, 45})
_CODE = re.compile(r"Xid (\d+)")
_COUNTERS = {
    "gpu_uncorrectable_ecc_errors": "uncorrectable memory error",
    "gpu_remapped_rows": "memory row given up",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """``hard``: the card's own fault, not the program's. ``sure``: it is known to be a slow engine's card."""

    time: float
    where: str
    text: str
    hard: bool
    sure: bool


def faults_of(view: View) -> tuple[Fault, ...]:
    """What cards of the slow engines reported in the window, in time order; clean-up is left out."""
    counted = [*_codes(view), *_counted(view)]
    slack = view.spans.look_back_seconds + 2 * view.case.step_seconds
    told = [f for f in _logged(view) if not any(_same(f, other, slack) for other in counted)]
    found = [*counted, *told]
    return tuple(sorted(found, key=lambda fault: fault.time))


def _same(logged: Fault, counted: Fault, slack: float) -> bool:
    """One event, told by the kernel with an address and by an exporter with a card's name."""
    code, other = _CODE.search(logged.text), _CODE.search(counted.text)
    equal = code is not None and (other is None or code[1] == other[1])
    return equal and abs(logged.time - counted.time) <= slack


def watched(view: View) -> float:
    """Share of the incident in which Xids of the least watched of the slow engines' cards were seen; 0 where
    none are: counters of memory errors know nothing of a card that falls off its bus, or hangs. A collector
    that answers now and then counts for as often as it does."""
    seen: dict[str, float] = {}
    for name in ("gpu_xid_code", "gpu_xid_events"):
        for series in series_here(view, name)[0]:
            share = float(np.isfinite(series.within(view.spans.incident)).mean()) * _answers(view, series)
            card = gpu_name(series.labels)
            seen[card] = max(share, seen.get(card, 0.0))
    for name in _COUNTERS:
        for series in series_here(view, name)[0]:
            seen.setdefault(gpu_name(series.labels), 0.0)
    return min(seen.values(), default=0.0)


def _answers(view: View, series: Series) -> float:
    """Share of the incident's scrapes that the target of ``series`` answered; 1 where that is not known."""
    where = series.labels.get("instance", "")
    ups = [s for s in view.case.of("target_up") if s.labels.get("instance", "") == where]
    share = float(np.nanmean(ups[0].within(view.spans.incident))) if ups else 1.0
    return share if np.isfinite(share) else 0.0


def _codes(view: View) -> Iterator[Fault]:
    """A new code, or a code that counts on."""
    chosen, here = series_here(view, "gpu_xid_code")
    for series in chosen:
        for time, value in _rises(series, any_change=True):
            code = round(value)
            if code > 0 and code not in _CLEAN_UP:
                yield Fault(time, gpu_name(series.labels), f"Xid {code}", code in _HARD, here.sure)
    counted, here = series_here(view, "gpu_xid_events")
    for series in counted:
        last = {gpu_name(one.labels): one for one in chosen}.get(gpu_name(series.labels))
        for time, _ in _rises(series, any_change=False):
            code = _at(last, time) if last is not None else 0
            if code not in _CLEAN_UP:
                text = f"Xid {code}" if code else "an Xid"
                yield Fault(time, gpu_name(series.labels), text, code in _HARD, here.sure)


def _at(series: Series, time: float) -> int:
    seen = np.isfinite(series.values) & (series.times <= time)
    return round(float(series.values[seen][-1])) if seen.any() else 0


def _counted(view: View) -> Iterator[Fault]:
    for name, text in _COUNTERS.items():
        chosen, here = series_here(view, name)
        for series in chosen:
            for time, _ in _rises(series, any_change=False):
                yield Fault(time, gpu_name(series.labels), text, True, here.sure)


def _rises(series: Series, *, any_change: bool) -> Iterator[tuple[float, float]]:
    """When a value grew (or changed), and to what. The first value seen is no event."""
    seen = np.isfinite(series.values)
    times, values = series.times[seen], series.values[seen]
    steps = np.diff(values)
    for i in np.flatnonzero(steps != 0 if any_change else steps > 0):
        yield float(times[i + 1]), float(values[i + 1])


def _logged(view: View) -> Iterator[Fault]:
    """The kernel's own lines name the PCI address; which engine runs there, they do not."""
    for event in view.case.events:
        found = _CODE.search(event.text) if event.kind == "xid" else None
        if found is None or not view.case.window.contains(event.time):
            continue
        code = int(found[1])
        if code not in _CLEAN_UP:
            yield Fault(event.time, event.target, event.text, code in _HARD, len(view.engines) <= 1)
