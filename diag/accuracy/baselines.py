"""The rivals: methods that rank metrics without knowing what any of them means.

Each takes the same ``Columns`` and sorts signals by a score; ``groups`` turns the order into causes (see
``suspects``). None may fail in silence: a method that cannot run raises.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from diag.accuracy.columns import Columns
from diag.accuracy.suspects import suspects_of
from diag.errors import DiagError
from diag.model import Floats
from diag.stats.robust import mad_sigma
from diag.stats.two_sample import kolmogorov, spearman

__all__ = ["BASELINES", "FSE_BARO", "groups", "ranked_signals"]

FSE_BARO = ("fse-baro robust", "fse-baro nsigma")
_KEPT = 10


def _sigma(before: Floats) -> float:
    # A series that never moved before has no σ; any departure from it must still be a finite score.
    return max(float(np.std(before)), 1e-6 * (1.0 + abs(float(np.mean(before)))))


def _n_sigma(before: Floats, after: Floats) -> float:
    return float(np.max(after - np.mean(before))) / _sigma(before)


def _two_sided(before: Floats, after: Floats) -> float:
    return float(np.max(np.abs(after - np.mean(before)))) / _sigma(before)


def _mean_shift(before: Floats, after: Floats) -> float:
    spread = mad_sigma(before)
    floor = 0.02 * abs(float(np.median(before))) + 1e-6
    return abs(float(np.mean(after)) - float(np.median(before))) / max(spread, floor)


def _volume(before: Floats, after: Floats) -> float:
    """Relative change of the mean × share of the time spent on that side of it. From nothing to something
    counts as a change of 1."""
    a, b = float(np.mean(before)), float(np.mean(after))
    change = (b - a) / abs(a) if abs(a) > 1e-12 else float(np.sign(b))
    beyond = after > a if change > 0 else after < a
    return abs(change) * float(np.mean(beyond))


_BY_SIDES: Mapping[str, Callable[[Floats, Floats], float]] = {
    "n-sigma": _n_sigma,
    "n-sigma two-sided": _two_sided,
    "mean shift": _mean_shift,
    "ks2": kolmogorov,
    "relative volume": _volume,
}

BASELINES: tuple[str, ...] = ("random", *_BY_SIDES, "spearman", *FSE_BARO)
"""All that rank metrics; the threshold checker stands beside them."""


def ranked_signals(method: str, columns: Columns, case: str) -> tuple[str, ...]:
    """The signals of ``columns``, most suspect first. ``case`` seeds the random one.

    Raises:
        DiagError: fse-baro is asked for and not installed.
    """
    if method in FSE_BARO:
        return _baro(method, columns)
    if method == "random":
        names = sorted(columns.before)
        order = np.random.default_rng(zlib.crc32(case.encode())).permutation(len(names))
        return tuple(names[i] for i in order)
    if method == "spearman":
        score = {n: abs(spearman(columns.whole(n), columns.symptom)) for n in columns.before}
    else:
        sides = _BY_SIDES[method]
        score = {n: sides(columns.before[n], columns.after[n]) for n in columns.before}
    return tuple(sorted(score, key=lambda n: (-score[n], n)))


def _baro(method: str, columns: Columns) -> tuple[str, ...]:
    """fse-baro 0.2.2 as shipped: one-sided, columns constant on either side vanish from its answer."""
    try:
        import pandas as pd
        from baro.root_cause_analysis import nsigma, robust_scorer
    except ImportError:
        raise DiagError(
            "the baseline fse-baro is not installed", hint="pip install fse-baro==0.2.2, or leave it out"
        ) from None
    m = len(next(iter(columns.before.values()), ()))
    n = len(next(iter(columns.after.values()), ()))
    # Its own reader drops every column with "time" in its name, and rescales those ending in "_mem".
    names = {f"c{i}": name for i, name in enumerate(columns.before)}
    data = pd.DataFrame({key: columns.whole(name) for key, name in names.items()})
    data.insert(0, "time", np.arange(m + n))
    found = (robust_scorer if method == FSE_BARO[0] else nsigma)(data, inject_time=m)
    return tuple(names[key] for key in found["ranks"])


def groups(signals: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Causes in the order of their signals: one group a signal, signals that name nothing new passed over."""
    found: list[tuple[str, ...]] = []
    named: set[str] = set()
    for signal in signals:
        causes = suspects_of(signal)
        if causes and not set(causes) <= named:
            found.append(causes)
            named |= set(causes)
        if len(found) == _KEPT:
            break
    return tuple(found)
