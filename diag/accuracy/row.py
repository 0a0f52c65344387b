"""What is kept of one judged case: enough to score it again in a moment, small enough for thousands."""

from __future__ import annotations

import msgspec

from diag.accuracy.label import Label

__all__ = ["Answer", "Held", "Rival", "Row"]

Groups = tuple[tuple[str, ...], ...]


class Answer(msgspec.Struct, frozen=True):
    """One hypothesis as it stands in the verdict. ``lacked``: something it asked for was not there.
    ``votes``: (group, weight) of its evidence; ``own``: their sum with timing and the share explained."""

    id: str
    state: str
    confidence: float
    own: float = 0.0
    driven: bool = False
    trigger: bool = True
    lacked: bool = False
    consequence: bool = False
    votes: tuple[tuple[str, float], ...] = ()


class Held(msgspec.Struct, frozen=True):
    """The answer when the room of the true cause is taken away."""

    leading: str | None
    confidence: float


class Rival(msgspec.Struct, frozen=True):
    """Causes by a rival method, most suspect first: split at our onset, and at the true one."""

    found: Groups
    true: Groups


class Row(msgspec.Struct, frozen=True):
    """One case. ``digest`` names the bundle's content. ``answers`` in the verdict's order, unknown among
    them; ``scope`` and ``onset`` (unix seconds) as the leading one tells them; ``engines``: every instance
    seen; ``step_seconds``: of the grid; ``seconds``: CPU by what it was spent on."""

    name: str
    family: str
    digest: str
    label: Label
    leading: str | None
    symptom: bool
    answers: tuple[Answer, ...]
    scope: dict[str, tuple[str, ...]]
    onset: float | None
    engines: tuple[str, ...]
    step_seconds: float
    summary: str = ""
    held: Held | None = None
    rivals: dict[str, Rival] = {}
    seconds: dict[str, float] = {}

    @property
    def confidence(self) -> float:
        """Of the leading answer; 0 when there is none."""
        return next((one.confidence for one in self.answers if one.id == self.leading), 0.0)

    @property
    def ranked(self) -> tuple[str, ...]:
        """The answers that stand, best first: the verdict's order without what is ruled out or out of reach.

        Unknown takes its place by confidence, but never before the leading answer. Nothing leads: nothing
        is ranked, since the operator was told that nothing is wrong."""
        if self.leading is None:
            return ()
        standing = [
            one for one in self.answers
            if one.id != "unknown" and one.state in ("supported", "undecided")
        ]  # fmt: skip
        doubt = next((one.confidence for one in self.answers if one.id == "unknown"), 0.0)
        at = 0 if self.leading == "unknown" else 1
        while at and at < len(standing) and standing[at].confidence >= doubt:
            at += 1
        ids = [one.id for one in standing]
        return (*ids[:at], "unknown", *ids[at:])
