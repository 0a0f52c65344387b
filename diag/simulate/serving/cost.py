"""What a step takes: the machine's cost model under the pace that clocks, links and hosts leave it."""

from __future__ import annotations

from dataclasses import dataclass

from diag.simulate.plan import Machine, Settings

__all__ = ["Pace", "StepCost", "draft_factor"]

_DRAFT_RATIO = 0.05
_EAGER_BUSY_RATIO = 0.4


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a replica is at the moment. ``prefill``, ``decode``: multiples of the machine's time on
    the GPU; ``eager``: no batch runs with CUDA graphs; ``stretch``: multiple of the whole step while the
    GPU waits; ``added_seconds``: to every step, off the GPU."""

    prefill: float = 1.0
    decode: float = 1.0
    eager: bool = False
    stretch: float = 1.0
    added_seconds: float = 0.0

    def near(self, other: Pace) -> bool:
        """Whether the two make no difference worth a new plan."""
        return (
            self.eager == other.eager
            and abs(self.prefill - other.prefill) < 0.004 * other.prefill
            and abs(self.decode - other.decode) < 0.004 * other.decode
            and abs(self.stretch - other.stretch) < 0.004 * other.stretch
            and abs(self.added_seconds - other.added_seconds) < 1e-4
        )


def draft_factor(settings: Settings) -> float:
    """A drafted token costs its draft and its share of a wider verification: assumed 5 % of a step each."""
    return 1.0 + _DRAFT_RATIO * settings.speculative_tokens


class StepCost:
    """Step times of one replica under its present settings and pace."""

    __slots__ = (
        "_base", "_captured", "_context", "_draft", "_eager_factor", "_machine", "_overhead", "_pair",
        "_prefill_base", "_sequence", "_token", "pace",
    )  # fmt: skip

    def __init__(self, machine: Machine, settings: Settings) -> None:
        self._machine = machine
        self._draft = draft_factor(settings)
        self._captured = settings.max_captured_batch
        self._eager_factor = settings.eager_factor
        self.adopt(Pace())

    def adopt(self, pace: Pace) -> None:
        """Take ``pace`` for the steps that begin from now on."""
        machine, self.pace = self._machine, pace
        decode = pace.decode * self._draft
        self._overhead = machine.overhead_seconds * pace.decode
        self._base = machine.decode_base_seconds * decode
        self._sequence = machine.decode_sequence_seconds * decode
        self._context = machine.decode_context_seconds * decode
        self._prefill_base = machine.prefill_base_seconds * pace.prefill
        self._token = machine.prefill_token_seconds * pace.prefill
        self._pair = machine.prefill_pair_seconds * pace.prefill

    def step(self, tokens: int, pairs: float, batch: int, context: int) -> tuple[float, float, float]:
        """A step of ``tokens`` prompt tokens that attend ``pairs`` pairs, and ``batch`` decoding
        sequences with ``context`` tokens in all: its seconds, those in which the GPU works, and by how
        much each further token of context makes it longer."""
        gpu, slope, idle = self._overhead, 0.0, 0.0
        if tokens:
            gpu += self._prefill_base + tokens * self._token + pairs * self._pair
        if batch:
            slope = self._context
            decode = self._base + batch * self._sequence + context * slope
            if self.pace.eager or batch > self._captured:
                # Launches one by one leave gaps between the kernels.
                more = decode * (self._eager_factor - 1.0)
                decode, slope = decode + more * _EAGER_BUSY_RATIO, slope * self._eager_factor
                idle = more * (1.0 - _EAGER_BUSY_RATIO)
            gpu += decode
        stretch = self.pace.stretch
        return (gpu + idle) * stretch + self.pace.added_seconds, gpu, slope * stretch
