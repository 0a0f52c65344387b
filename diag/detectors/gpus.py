"""Per-GPU findings side by side, and whether a foreign process keeps time with the slow spells."""

from __future__ import annotations

import numpy as np

from diag.detectors.episodes import Episode
from diag.detectors.places import findings_here
from diag.detectors.symptoms import Course
from diag.detectors.view import View
from diag.model import Finding, Floats, Labels, Series
from diag.stats.timing import Coincidence, coincidence

__all__ = ["gpu_name", "in_step", "same_gpu", "strongest", "worst"]


def gpu_name(labels: Labels) -> str:
    """How to call a GPU: index or short id, and node, as far as labels tell."""
    index, gpu, node = labels.get("gpu_index", ""), labels.get("gpu", ""), labels.get("node", "")
    name = (
        f"GPU {index}"
        if index
        else gpu[:12]
        if gpu.startswith("GPU-")
        else f"GPU {gpu}"
        if gpu
        else "the GPU"
    )
    return f"{name} of {node}" if node else name


def worst(view: View, name: str, sign: int) -> Finding | None:
    """Of the slow engines' GPUs the finding that moved furthest in the direction ``sign``."""
    found, _ = findings_here(view, name)
    return max(found, key=lambda f: sign * f.effect) if found else None


def same_gpu(view: View, name: str, like: Finding) -> Finding | None:
    """The finding of another signal on the GPU of ``like``; the only one where labels differ."""
    found, _ = findings_here(view, name)
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
