"""Which nodes and GPUs the slow engines run on: what happens elsewhere is nobody's alibi or guilt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from diag.detectors.view import View
from diag.model import Evidence, Finding, Labels, Series

__all__ = ["Here", "findings_here", "series_here"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Here:
    """Whether what was found is known to be on the slow engines' own hardware.

    ``sure`` is False when no label joins them to a node or GPU although there are several."""

    sure: bool

    def judge(self, evidence: Evidence) -> Evidence:
        """Unattributed evidence neither convicts nor rules out: half the support, and never decisive."""
        if self.sure:
            return evidence
        text = f"{evidence.text} (whether the slow engine runs there is not known)"
        # Half-way to "says nothing", on either side.
        degree = (evidence.degree + 0.5) / 2
        return replace(evidence, text=text, degree=degree, decisive=False)


def findings_here(view: View, name: str) -> tuple[tuple[Finding, ...], Here]:
    """Findings of a GPU or node signal on the slow engines' hardware; all of them where unknown."""
    found = view.each.get(name, ())
    kept = tuple(f for f in found if _is_here(view, f.labels))
    return _or_all(view, found, kept)


def series_here(view: View, name: str) -> tuple[tuple[Series, ...], Here]:
    """The same for series."""
    found = view.case.of(name)
    kept = tuple(s for s in found if _is_here(view, s.labels))
    return _or_all(view, found, kept)


def _or_all(view: View, found: tuple[_T, ...], kept: tuple[_T, ...]) -> tuple[tuple[_T, ...], Here]:
    places = _places(view)
    if places is None:
        return found, Here(len(found) <= 1)
    return kept, Here(True)


def _places(view: View) -> tuple[frozenset[str], frozenset[str]] | None:
    """Nodes and GPUs of the slow engines (of all, when none stands out); None when one has no place."""
    wanted = set(view.affected) or {join.instance for join in view.case.joins}
    joins = [join for join in view.case.joins if join.instance in wanted]
    if not joins or any(join.node is None for join in joins):
        return None
    nodes = frozenset(join.node for join in joins if join.node is not None)
    return nodes, frozenset(gpu for join in joins for gpu in join.gpus)


def _is_here(view: View, labels: Labels) -> bool:
    places = _places(view)
    if places is None:
        return True
    nodes, gpus = places
    names: Iterable[str] = (labels.get("gpu", ""), labels.get("gpu_index", ""))
    if gpus and labels.get("gpu"):
        return any(name in gpus for name in names)
    return labels.get("node", "") in nodes or not labels.get("node")
