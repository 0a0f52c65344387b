"""The recordings, judged once each: whole, and only up to their own onset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from diag.api import triage
from diag.model import Assessment, Verdict, Window
from diag.simulate import load, save
from diag.sources.protocol import Question

_NOW = 1_796_000_000.0


@dataclass(frozen=True, slots=True)
class Judged:
    """A recording's label (read by the tests alone) and two verdicts that never saw it.

    ``before`` judges the stretch from the window's start to the labelled onset, or the first half
    where nothing ever went wrong."""

    name: str
    label: Mapping[str, Any]
    whole: Verdict
    before: Verdict

    @property
    def accepted(self) -> list[str | None]:
        """The leading answers that count as right."""
        return list(self.label.get("accept") or [self.label["leading"]])

    def of(self, id: str) -> Assessment:
        """The whole recording's assessment of ``id``."""
        (found,) = [one for one in self.whole.assessments if one.id == id]
        return found


@pytest.fixture(scope="session")
def judged(incidents: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Judged]:
    """A recording by name, label and notes taken out before anything is read."""

    @cache
    def get(name: str) -> Judged:
        folder = incidents / name
        bundle = load(folder if folder.is_dir() else incidents.parent / "heldout" / name)
        blind = save(bundle.with_meta(label=None, notes=""), tmp_path_factory.mktemp("blind"))
        window = bundle.window
        onset = bundle.label["onset"] or window.start + window.seconds / 2
        half = Question(now=_NOW, window=Window(window.start, onset))
        whole = triage(blind, question=Question(now=_NOW))
        return Judged(name, bundle.label, whole, triage(blind, question=half))

    return get
