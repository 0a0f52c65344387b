"""What a reconstructed case is: what was posted, what was filled in, and the answer it must get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from diag.simulate.parts import Bundle

__all__ = ["Label", "Reconstructed"]


@dataclass(frozen=True, slots=True)
class Label:
    """The answer of a public case, in ids of the catalogue.

    ``leading``: the id, "unknown", or None when nothing is wrong with the service. ``accept``: what is right
    besides it. ``undecided``: whether any leading answer is right as long as it is told as undecided.
    ``must_not``: suspects that the case rules out: they may not lead, nor be supported. ``keep_open``: what may
    not be ruled out, since the data that would do it are missing. ``onset_seconds``: since the window's start,
    None where nothing begins. ``why``: how the case's own words map to ids, in a sentence."""

    leading: str | None
    why: str
    accept: tuple[str | None, ...] = ()
    must_not: tuple[str, ...] = ()
    keep_open: tuple[str, ...] = ()
    undecided: bool = False
    onset_seconds: float | None = None
    scope: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def written(self, start: float) -> dict[str, Any]:
        """As it stands in bundle.json; ``start`` is the window's, unix seconds."""
        real = self.leading not in (None, "unknown")
        return {
            "causes": [self.leading] if real else [],
            "leading": self.leading,
            "accept": [self.leading, *self.accept],
            "must_not": list(self.must_not),
            "keep_open": list(self.keep_open),
            "undecided": self.undecided,
            "scope": {key: list(values) for key, values in self.scope.items()},
            "onset": None if self.onset_seconds is None else start + self.onset_seconds,
            "kind": "reconstructed",
        }


@dataclass(frozen=True, slots=True)
class Reconstructed:
    """One public incident as a bundle.

    ``id``, ``family``, ``source`` ("owner/repository#number") and ``sure`` (how sure the thread is of its cause)
    are the catalogue's. ``posted``: what people wrote down, used exactly. ``filled``: what they did not and a
    bundle needs. ``make`` builds the parts; nothing of the label reaches it."""

    id: str
    family: str
    source: str
    sure: str
    posted: str
    filled: str
    label: Label
    make: Callable[[], Bundle]

    @property
    def notes(self) -> str:
        """For bundle.json."""
        return f"RECONSTRUCTED from {self.source}. POSTED: {self.posted} FILLED IN: {self.filled}"

    def bundle(self) -> Bundle:
        """The whole bundle, label and notes included; equal bytes at every call."""
        made = self.make()
        label = self.label.written(made.window.start)
        return made.with_meta(name=self.id.lower(), label=label, notes=self.notes)
