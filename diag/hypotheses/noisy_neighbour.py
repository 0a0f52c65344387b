"""Another process uses the same GPU, in step with the slow spells."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from diag.detectors.cues import PRESENT, Explained, Reach, stated
from diag.detectors.gpus import gpu_name, in_step
from diag.detectors.peers import slower_there
from diag.detectors.places import Here, series_here
from diag.detectors.service import demand_of, slower
from diag.detectors.view import View
from diag.detectors.whom import engines_on
from diag.hypotheses.registry import Output
from diag.model import Card, Mitigation, Series
from diag.quantities import quantity
from diag.stats.timing import Coincidence

CARD = Card(
    id="noisy_neighbour",
    title="Another process on the same GPU takes its time",
    mechanism="A second process shares the GPU's compute, bandwidth or memory; whenever it is busy the engine's steps take longer.",
    signs=("foreign SM time or memory up in step with the slow spells", "other GPUs unaffected", "utilisation high while the engine's own load is level"),
    rules_out=("no foreign process on the GPU", "its busy times do not match the slow times"),
    look_alikes={"load_burst": "own load", "host_cpu_starvation": "neighbour on the CPU, not the GPU"},
    mitigations=(
        Mitigation("Stop or move the other process; nvidia-smi shows its PID.", True),
        Mitigation("Give the engine the card alone (scheduling, MIG, exclusive compute mode).", False),
    ),
    next_check="nvidia-smi pmon -c 30 on the node while it is slow.",
    chain=("gpu_foreign_sm_ratio", "gpu_foreign_memory_bytes", "gpu_utilization_ratio", "inter_token_seconds_mean", "prefill_seconds_mean", "ttft_seconds_mean"),
)  # fmt: skip

NEEDS = (("gpu_foreign_sm_ratio", "gpu_foreign_memory_bytes"),)
# Less than this is no neighbour at all; where a process stays resident between its runs, what counts
# as busy lies midway between its own low and high.
_LEAST = {"gpu_foreign_sm_ratio": 0.06, "gpu_foreign_memory_bytes": 5e8}
_IN_STEP, _OUT_OF_STEP = 0.45, 0.15  # phi; the published prototype's bounds
_FEW = 4  # switches below which a match is one coincidence


def examine(view: View) -> Iterator[Output]:
    """Is there a foreign process at all, was it there more than before, does it keep time?"""
    found = _busiest(view)
    if found is None:
        return
    series, level, here = found
    before = _busy(series.within(view.spans.baseline), level) or 0.0
    during = _busy(series.within(view.spans.incident), level) or 0.0
    where = gpu_name(series.labels)
    if during == 0:
        present = float(np.isfinite(series.within(view.spans.incident)).mean()) >= PRESENT
        text = f"no foreign process on {where} in the whole incident"
        none = stated(
            "foreign", series.signal, False, text, before=before, during=0.0, unit="ratio", decisive=present
        )
        yield here.judge(none)
        return
    text = f"a foreign process is busy on {where} for {quantity(during, 'ratio')} of the incident ({quantity(before, 'ratio')} before)"
    degree = min(1.0, 0.5 + max(0.0, during - before))
    yield here.judge(
        stated(
            "foreign", series.signal, True, text, before=before, during=during, unit="ratio", degree=degree
        )
    )
    match = in_step(view, series, level)
    if match is not None:
        yield from _timing(match, series.signal, here)
        if _together(match):
            yield Reach({"gpus": (where,), "instances": engines_on(view, (series.labels,))})
    yield from _effect(view)


def _effect(view: View) -> Iterator[Output]:
    """Slower at equal work, and only those who share the card: a neighbour that is felt."""
    speed, there, demand = slower(view), slower_there(view), demand_of(view)
    if demand.known >= 2:
        text = f"demand moved: {', '.join(demand.moved)}" if demand.moved else "equal work"
        yield stated("demand_flat", "arrivals_per_second", not demand.moved, text, degree=1 - demand.degree)
    if speed is None:
        return
    ratio, seen = speed
    degree = max(0.0, min(1.0, 0.5 + (ratio - 1.15) / 0.3))
    text = f"time between tokens ×{ratio:.2f} ({seen})"
    yield stated("slower", "inter_token_seconds_mean", degree >= 0.5, text, degree=degree)
    if there is not None:
        apart = ratio / max(there[0], 1e-6) >= 1.15
        text = f"time between tokens ×{ratio:.2f} here, ×{there[0]:.2f} at the engines nobody complains about"
        yield stated("apart", "inter_token_seconds_mean", apart, text, degree=1.0 if apart else 0.2)


def _busiest(view: View) -> tuple[Series, float, Here] | None:
    """The foreign-use series of the slow engines' GPUs that is busy most, with its busy level."""
    best: tuple[float, Series, float, Here] | None = None
    for name, least in _LEAST.items():
        found, here = series_here(view, name)
        for series in found:
            level = _busy_level(series.values, least)
            during = _busy(series.within(view.spans.incident), level)
            if during is not None and (best is None or during > best[0]):
                best = (during, series, level, here)
    return best[1:] if best is not None else None


def _busy_level(values: np.ndarray, least: float) -> float:
    seen = values[np.isfinite(values)]
    if not len(seen):
        return least
    low, high = (float(q) for q in np.quantile(seen, [0.05, 0.95]))
    return (low + high) / 2 if high > least and high > 1.5 * low else least


def _busy(values: np.ndarray, level: float) -> float | None:
    seen = values[np.isfinite(values)]
    return float(np.mean(seen > level)) if len(seen) else None


def _together(match: Coincidence) -> bool:
    return match.phi >= _IN_STEP and match.p <= 0.1


def _timing(match: Coincidence, signal: str, here: Here) -> Iterator[Output]:
    text = (
        f"slow for {quantity(match.bad_when_on, 'ratio')} of its busy time and {quantity(match.bad_when_off, 'ratio')} of its idle time "
        f"(phi {match.phi:.2f}, p {match.p:.2g}, {match.transitions} switches)"
    )
    if _together(match):
        enough = match.transitions >= 2 * _FEW
        yield here.judge(stated("in_step", signal, True, text, degree=1.0 if enough else 0.6))
        yield Explained(min(1.0, match.bad_when_on))
        return
    apart = match.phi < _OUT_OF_STEP
    text = f"its busy times do not match the slow times: {text}"
    decisive = apart and match.transitions >= _FEW
    yield here.judge(stated("in_step", signal, False, text, degree=0.0 if apart else 0.4, decisive=decisive))
