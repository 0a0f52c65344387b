"""Whom a cause hits: the cards, instances or clients whose own value moved.

That something moved is settled before, on all of them together; here it is only asked who took part. A part
has less data than the whole and would often miss the floor by chance, so each is held to the one that moved
most: whoever lies nearer to it than to standing still took part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from diag.detectors.findings import judge_values
from diag.detectors.gpus import gpu_name
from diag.detectors.view import View
from diag.detectors.workload import Workload
from diag.model import Finding, Floats, Labels
from diag.records.cohorts import Flags
from diag.signals import SIGNALS, Signal

__all__ = [
    "engines_changed",
    "engines_on",
    "instances_moved",
    "places_marked",
    "tenants_busier",
    "tenants_moved",
    "tenants_of",
]

_STEPS = ("inter_token_seconds_mean", "decode_seconds_mean")
_FEWEST = 5  # requests of one client on either side
_PART = 0.5  # of the greatest shift: nearer to it than to none
_MOST_LOGARITHM = 4.0  # from nothing to something has no size; see ``findings.judge_values``


def places_marked(view: View, names: Iterable[str], sign: int) -> tuple[Labels, ...]:
    """Labels of every card (or node) on which one of the signals ``names`` moved in the direction ``sign``.

    Others than the slow engines' are among them: a mark is a mark wherever it is seen."""
    marked: dict[str, Labels] = {}
    for name in names:
        found = [f for f in view.each.get(name, ()) if sign * f.effect >= 1]
        shifts = {gpu_name(f.labels): sign * _shift(f) for f in found}
        for finding in found:
            if gpu_name(finding.labels) in _takers(shifts):
                marked.setdefault(gpu_name(finding.labels), finding.labels)
    return tuple(marked[name] for name in sorted(marked))


def engines_on(view: View, places: Iterable[Labels]) -> tuple[str, ...]:
    """Instances that run on one of these cards (or nodes, where no card is named); those that are slow where
    nothing joins an instance to any of them.

    Engines of one host are often joined to all of its cards alike: more engines than cards then take part
    only as far as their own steps got longer."""
    wanted = tuple(places)
    on = {j.instance for j in view.case.joins if any(_runs_on(j.node, j.gpus, one) for one in wanted)}
    cards = all(place.get("gpu") or place.get("gpu_index") for place in wanted)
    if cards and len(on) > len(wanted):
        on = on & set(instances_moved(view, _STEPS, 1)) or on
    return tuple(sorted(on)) or view.affected


def _runs_on(node: str | None, gpus: tuple[str, ...], place: Labels) -> bool:
    if node is not None and place.get("node") and place["node"] != node:
        return False
    names = {name for name in (place.get("gpu"), place.get("gpu_index")) if name}
    if gpus and names:
        return bool(names & set(gpus))
    return node is not None and place.get("node") == node


def instances_moved(view: View, names: Iterable[str], sign: int) -> tuple[str, ...]:
    """Instances whose own value of the first measured of ``names`` moved in the direction ``sign``; those
    that are slow where none did."""
    for name in names:
        found = [f for f in view.each.get(name, ()) if f.labels.get("instance")]
        if not found:
            continue
        if max(sign * f.effect for f in found) < 1:
            break
        return _takers({f.labels["instance"]: sign * _shift(f) for f in found})
    return view.affected


def engines_changed(view: View, since: float) -> tuple[str, ...]:
    """Engines that were started anew or came to run with other settings from ``since`` on: a rollout takes
    one after the other, and its later ones come after the trouble began."""
    targets = [c.target for c in view.changes if c.kind in ("fact", "restart") and c.time >= since]
    known = view.engines
    return tuple(dict.fromkeys(name for name in view.engines_named(targets) if not known or name in known))


def tenants_moved(work: Workload | None, name: str, values: Floats, sign: int) -> tuple[str, ...]:
    """Tenants whose requests' ``values`` (shape (n,), in the unit of the signal ``name``) moved in the
    direction ``sign``; () without tenants, or where none did."""
    if work is None:
        return ()
    signal, shifts = SIGNALS[name], {}
    for tenant, own in _tenants(work):
        before, during = values[own & work.baseline], values[own & work.incident]
        if min(np.isfinite(before).sum(), np.isfinite(during).sum()) < _FEWEST:
            continue
        found = judge_values(signal, before, during)
        if found is not None:
            shifts[tenant] = sign * _shift(found)
    return _takers(shifts, signal)


def tenants_busier(work: Workload | None, chosen: Flags | None = None) -> tuple[str, ...]:
    """Tenants that send more of the ``chosen`` requests (default: all) a second than before."""
    if work is None:
        return ()
    signal, shifts = SIGNALS["arrivals_per_second"], {}
    spans = [_seconds(work.requests.ts[window]) for window in (work.baseline, work.incident)]
    for tenant, own in _tenants(work):
        own = own if chosen is None else own & chosen
        before, during = int((own & work.baseline).sum()), int((own & work.incident).sum())
        if max(before, during) >= _FEWEST:
            shifts[tenant] = float(np.log((during + 0.5) / spans[1]) - np.log((before + 0.5) / spans[0]))
    return _takers(shifts, signal)


def tenants_of(work: Workload | None, weights: Floats) -> tuple[str, ...]:
    """Tenants that hold most of ``weights`` (shape (n,), not negative) within the incident: the heaviest and
    those with at least half as much."""
    if work is None:
        return ()
    return _takers({name: float(weights[own & work.incident].sum()) for name, own in _tenants(work)})


def _tenants(work: Workload) -> list[tuple[str, Flags]]:
    return [(name, work.requests.tenant == code) for code, name in enumerate(work.requests.tenants)]


def _seconds(ts: Floats) -> float:
    return max(float(ts[-1] - ts[0]), 1.0) if len(ts) else 1.0


def _shift(finding: Finding) -> float:
    """How far it moved: a logarithm for relative signals, a difference otherwise."""
    signal = SIGNALS[finding.signal]
    if not signal.relative:
        return finding.during - finding.before
    ratio = np.log(max(finding.during, 1e-12) / max(finding.before, 1e-12))
    return float(np.clip(ratio, -_MOST_LOGARITHM, _MOST_LOGARITHM))


def _takers(shifts: Mapping[str, float], signal: Signal | None = None) -> tuple[str, ...]:
    """Those with at least half of the greatest shift; () where that is below the signal's floor."""
    most = max(shifts.values(), default=0.0)
    if most <= 0 or (signal is not None and most < signal.floor):
        return ()
    return tuple(sorted(name for name, shift in shifts.items() if shift >= _PART * most))
