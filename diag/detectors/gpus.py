"""Per-GPU findings side by side, and whether a foreign process keeps time with the slow spells."""

from __future__ import annotations

import numpy as np

from diag.detectors.symptoms import Course, Episode
from diag.detectors.view import View
from diag.model import Finding, Floats, Series
from diag.stats.timing import Coincidence, coincidence

__all__ = ["gpu_name", "in_step", "same_gpu", "strongest", "worst"]


def gpu_name(labels: object) -> str:
    """How to call a GPU: node and index (or id), as far as labels tell."""
    assert isinstance(labels, dict) or hasattr(labels, "get")
    node, gpu = labels.get("node", ""), labels.get("gpu", "")
    return " ".join(part for part in (node, f"GPU {gpu}" if gpu else "") if part) or "the GPU"


def worst(view: View, name: str, sign: int) -> Finding | None:
    """The GPU's finding that moved furthest in the direction ``sign``."""
    found = view.each.get(name, ())
    return max(found, key=lambda f: sign * f.effect) if found else None


def same_gpu(view: View, name: str, like: Finding) -> Finding | None:
    """The finding of another signal on the GPU of ``like``; the worst of all where labels differ."""
    found = view.each.get(name, ())
    for finding in found:
        keys = set(finding.labels) & set(like.labels) & {"gpu", "node"}
        if keys and all(finding.labels[k] == like.labels[k] for k in keys):
            return finding
    return found[0] if len(found) == 1 else None


def strongest(view: View) -> Episode | None:
    """The most pronounced symptom course."""
    return max(view.episodes, key=lambda e: e.strength) if view.episodes else None


def in_step(view: View, series: Series, level: float) -> Coincidence | None:
    """Do points of ``series`` above ``level`` coincide with the bad points of the worst course?"""
    episode = strongest(view)
    if episode is None:
        return None
    course = episode.course
    bad_at = np.isfinite(course.values) & (course.times >= view.spans.baseline.start)
    on = _sample(series, course, level)[bad_at]
    bad = course.values[bad_at] > episode.threshold
    keep = on >= 0
    return coincidence(on[keep] > 0, bad[keep], guard=max(2, course.overlap))


def _sample(series: Series, course: Course, level: float) -> Floats:
    """1 above ``level``, 0 below, -1 unknown, at the course's times (last value seen)."""
    seen = np.isfinite(series.values)
    times, values = series.times[seen], series.values[seen]
    at = np.searchsorted(times, course.times, side="right") - 1
    flags: Floats = np.where(at >= 0, (values[np.maximum(at, 0)] > level).astype(np.float64), -1.0)
    return flags
