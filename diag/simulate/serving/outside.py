"""What a scheduler cannot decide for itself."""

from __future__ import annotations

from diag.simulate.serving.sequences import Sequence

__all__ = ["Outside"]


class Outside:
    """What acts on a scheduler from outside. ``shares``: other replicas can be asked for KV;
    ``held_slots``: sequence slots held by requests that never run; ``grammar_seconds``: a step stalls for
    each structured request that begins."""

    __slots__ = ("grammar_seconds", "held_slots")

    shares = False

    def __init__(self) -> None:
        self.held_slots = 0
        self.grammar_seconds = 0.0

    def offer(self, sequence: Sequence, cached: int) -> int:
        """Tokens that another replica could send beyond ``cached`` ones; 0: it is asked in vain; -1:
        nobody to ask."""
        del sequence, cached
        return -1

    def fetch(self, sequence: Sequence, tokens: int) -> None:
        """Begin to fetch ``tokens`` tokens; ``Admission.unfetch`` says when that is over."""
        raise NotImplementedError
