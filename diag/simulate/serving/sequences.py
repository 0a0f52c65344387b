"""A request inside an engine."""

from __future__ import annotations

from enum import IntEnum

from diag.simulate.observed import Call
from diag.simulate.serving.blocks import Chain

__all__ = ["Phase", "Sequence"]


class Phase(IntEnum):
    """Where a sequence is."""

    FRONT = 0
    WAITING = 1
    FETCHING = 2
    PREFILL = 3
    DECODE = 4
    GONE = 5


class Sequence:
    """One try of one request at one replica. ``question``: equal for tries of the same prompt;
    ``head_key`` and ``session_key``: of its chains, "" for none; ``known_tokens``: prompt tokens that the
    session's earlier turns wrote (head included); ``answer_tokens``: what it will generate, ``cut`` short
    by a limit or not; ``computed``: tokens whose KV is there, while it prefills, and ``allocated``: those
    that have blocks; ``target``: tokens to compute before the next token comes; ``base``: its context
    minus the decoders' clock, while it decodes; ``stamp``: of its latest joining; ``asked``: other
    replicas were asked for its prefix; ``watched``: somebody still waits for the answer."""

    __slots__ = (
        "adapter", "allocated", "answer_tokens", "asked", "base", "cached", "call", "computed", "cut",
        "external", "finish_at", "generated", "head_blocks", "head_chain", "head_key", "head_tokens",
        "known_tokens", "last_token", "order", "phase", "priority", "prompt", "question", "session_blocks",
        "session_chain", "session_key", "stamp", "swapped", "target", "tenant", "watched",
    )  # fmt: skip

    def __init__(self, call: Call, answer_tokens: int, question: int) -> None:
        self.call = call
        self.question = question
        self.tenant = call.tenant
        self.adapter = call.adapter
        self.prompt = call.prompt_tokens
        self.head_tokens = call.head_tokens
        self.known_tokens = call.head_tokens + call.history_tokens
        self.answer_tokens = answer_tokens
        self.cut = False
        self.asked = False
        self.stamp = 0
        self.head_key = ""
        self.session_key = ""
        self.priority = 0
        self.order = call.number
        self.phase = Phase.FRONT
        self.generated = 0
        self.computed = 0
        self.allocated = 0
        self.cached = 0
        self.external = 0
        self.target = self.prompt
        self.base = 0
        self.finish_at = 0
        self.last_token = 0.0
        self.head_chain: Chain | None = None
        self.session_chain: Chain | None = None
        self.head_blocks = 0
        self.session_blocks = 0
        self.swapped = False
        self.watched = True

    @property
    def left_tokens(self) -> int:
        """Answer tokens still to generate."""
        return self.answer_tokens - self.generated
