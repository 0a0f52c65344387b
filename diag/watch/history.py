"""What changed from look to look: who leads, which states turned, when a source went and came back."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from diag.api.watching import Look
from diag.model import Assessment, State, Verdict
from diag.quantities import quantity

__all__ = ["Change", "History", "Place"]

_KEPT = 50
_LEAST = 0.01


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is news, at a time (unix seconds)."""

    time: float
    text: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a hypothesis stands. ``moved``: places gained since the look before, ``rose``: confidence gained;
    both 0 where it is ``new``: not among the standing ones then."""

    id: str
    title: str
    state: str
    confidence: float
    moved: int = 0
    rose: float = 0.0
    new: bool = False


@dataclass(slots=True)
class History:
    """``last``: the newest look that worked; ``lost``: why there is none now, "" while there is;
    ``waited_seconds``: how long the look under way has taken so far, 0 without one."""

    last: Look | None = None
    lost: str = ""
    lost_since: float | None = None
    waited_seconds: float = 0.0
    changes: deque[Change] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _before: Verdict | None = None

    def seen(self, look: Look) -> None:
        """A look that worked."""
        if self.lost:
            self.changes.append(Change(look.time, "the source answers again"))
        self.lost, self.lost_since = "", None
        before = self.last.verdict if self.last is not None else None
        if before is not None:
            self.changes.extend(Change(look.time, text) for text in _news(before, look.verdict))
        self._before, self.last = before, look

    def failed(self, time: float, why: str) -> None:
        """A look that did not."""
        if not self.lost:
            self.changes.append(Change(time, f"the source is gone: {why}"))
            self.lost_since = time
        self.lost = why

    def ranking(self, most: int) -> list[Place]:
        """The first ``most`` that stand, with how they moved."""
        if self.last is None:
            return []
        places = _places(self.last.verdict)
        if self._before is None:
            return list(places.values())[:most]
        before = _places(self._before)
        ranks = {id: rank for rank, id in enumerate(before)}
        found = []
        for rank, (id, one) in enumerate(places.items()):
            if id not in before:
                found.append(replace(one, new=True))
            else:
                rose = one.confidence - before[id].confidence
                found.append(replace(one, moved=ranks[id] - rank, rose=rose))
        return found[:most]

    def faint(self) -> int:
        """How many are undecided at a confidence that nobody would act on."""
        return sum(_is_faint(a) for a in self.last.verdict.assessments) if self.last is not None else 0


def _places(verdict: Verdict) -> Mapping[str, Place]:
    standing = [
        a for a in verdict.assessments if a.state in (State.SUPPORTED, State.UNDECIDED) and not _is_faint(a)
    ]
    return {
        a.id: Place(a.id, a.title, a.state.value, a.confidence)
        for a in sorted(standing, key=lambda a: a.rank)
    }  # fmt: skip


def _is_faint(one: Assessment) -> bool:
    return one.state is State.UNDECIDED and one.confidence < _LEAST


def _news(before: Verdict, now: Verdict) -> list[str]:
    found = []
    if before.leading != now.leading:
        found.append(f"leading cause: {before.leading or 'nothing wrong'} → {now.leading or 'nothing wrong'}")
    states = {a.id: a.state for a in before.assessments}
    for a in now.assessments:
        if a.id == "unknown" or states.get(a.id, a.state) is a.state:
            continue
        if State.SUPPORTED in (a.state, states[a.id]):
            confidence = quantity(a.confidence, "ratio")
            found.append(f"{a.id}: {_word(states[a.id])} → {_word(a.state)} (confidence {confidence})")
    return found


def _word(state: State) -> str:
    return state.value.replace("_", " ")
