"""What an answer tells while it passes: first token, usage, failure. Nothing of its text is kept.

The bytes go through untouched. Only where the proxy itself asked a stream for its usage is one event
taken out again, the one that carries the usage and no choice.
"""

from __future__ import annotations

import json
import re
from typing import Any, Protocol

__all__ = ["BodyWatch", "NoWatch", "StreamWatch", "Watch", "usage_counts"]

# A quotation mark inside text is escaped in JSON, so neither pattern can match within an answer's words.
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_FAILED = re.compile(rb'(?:^|\n)data: ?\{\s*"error"|"type"\s*:\s*"(?:error|response\.failed)"')
_DONE = re.compile(
    rb'(?:^|\n)data: ?(?:\[DONE\]|\{\s*"type"\s*:\s*"(?:message_stop|response\.completed)")'
)
_BOUNDARY = re.compile(rb"\r?\n\r?\n")
_EVENT = re.compile(rb".+?(?:\r?\n\r?\n|\Z)", re.DOTALL)
# An event that is not complete after so many bytes is no longer waited for.
_HELD_BYTES = 256 * 1024
# vLLM puts prompt_logprobs and prompt_token_ids behind usage: the tail must reach over them.
_TAIL_BYTES = 256 * 1024
_DECODER = json.JSONDecoder()
_SPOKEN = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal", "audio")


class Watch(Protocol):
    """Sees each piece of an answer. ``first_token``: on the caller's clock, None until one came.

    ``pieces``: events with data so far, a lower bound of the tokens; ``failed``: the stream itself
    told of an error; ``done``: its last event has come."""

    done: bool
    failed: bool
    first_token: float | None
    pieces: int

    def feed(self, data: bytes, now: float) -> bytes:
        """What goes to the client now for ``data`` that came at ``now``."""

    def rest(self) -> bytes:
        """What was held back, at the end of the answer."""

    def usage(self) -> dict[str, int]:
        """Counts the answer stated; a count it did not state is absent."""


class NoWatch:
    """An answer nothing can be read from: an error, a compressed body, a file."""

    __slots__ = ("done", "failed", "first_token", "pieces")

    def __init__(self) -> None:
        self.done = False
        self.failed = False
        self.first_token: float | None = None
        self.pieces = 0

    def feed(self, data: bytes, now: float) -> bytes:  # noqa: ARG002
        """Pass on."""
        return data

    def rest(self) -> bytes:
        """Nothing is held."""
        return b""

    def usage(self) -> dict[str, int]:
        """Nothing is known."""
        return {}


class BodyWatch(NoWatch):
    """A whole JSON answer: its usage stands near its end. When a token came first cannot be told."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        super().__init__()
        self._tail = bytearray()

    def feed(self, data: bytes, now: float) -> bytes:  # noqa: ARG002
        """Keep the last ``_TAIL_BYTES``."""
        self._tail += data
        if len(self._tail) > _TAIL_BYTES:
            del self._tail[:-_TAIL_BYTES]
        return data

    def usage(self) -> dict[str, int]:
        """Read at the end, once."""
        return usage_counts(_last_usage(bytes(self._tail)))


class StreamWatch:
    """Server-sent events. ``strip``: take out the usage event that the proxy asked for."""

    __slots__ = ("_first", "_held", "_last", "_strip", "done", "failed", "first_token", "pieces")

    def __init__(self, strip: bool) -> None:
        self.done = False
        self.failed = False
        self.first_token: float | None = None
        self.pieces = 0
        self._strip = strip
        self._held = b""
        self._first = b""
        self._last = b""

    def feed(self, data: bytes, now: float) -> bytes:
        """Almost every piece is whole events: one count and two searches."""
        if not self._held and data.endswith(b"\n\n"):
            return self._events(data, now)
        block = self._held + data
        cut = 0
        for boundary in _BOUNDARY.finditer(block):
            cut = boundary.end()
        self._held = block[cut:]
        out = self._events(block[:cut], now) if cut else b""
        if len(self._held) > _HELD_BYTES:
            out, self._held = out + self._held, b""
        return out if self._strip else data

    def rest(self) -> bytes:
        """The beginning of an event that never ended."""
        held, self._held = self._held, b""
        return held if self._strip else b""

    def usage(self) -> dict[str, int]:
        """Of the last event with usage; counts only an earlier one had (Anthropic's input) stay."""
        return usage_counts(_last_usage(self._first)) | usage_counts(_last_usage(self._last))

    def _events(self, block: bytes, now: float) -> bytes:
        self.pieces += block.count(b"\ndata:") + block.startswith(b"data:")
        if self.first_token is None and any(map(_speaks, _EVENT.findall(block))):
            self.first_token = now
        if b"[DONE]" in block or b"message_stop" in block or b"response.completed" in block:
            self.done = self.done or _DONE.search(block) is not None
        if b'"error"' in block or b'"response.failed"' in block:
            self.failed = self.failed or _FAILED.search(block) is not None
        if b'"usage"' not in block or _USAGE.search(block) is None:
            return block
        self._first = self._first or block
        self._last = block
        if not self._strip:
            return block
        return b"".join(event for event in _EVENT.findall(block) if not _only_usage(event))


def usage_counts(usage: Any) -> dict[str, int]:
    """Prompt, cached and output tokens of a ``usage`` object in OpenAI's or Anthropic's words.

    A cached count the server does not state is unknown, not 0 (vLLM: --enable-prompt-tokens-details).
    """
    if not isinstance(usage, dict):
        return {}
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    found = {
        "prompt_tokens": usage.get("prompt_tokens", usage.get("input_tokens")),
        "cached_tokens": cached if cached is not None else usage.get("cache_read_input_tokens"),
        "output_tokens": usage.get("completion_tokens", usage.get("output_tokens")),
    }
    return {name: n for name, n in found.items() if type(n) is int and 0 <= n < 2**53}


def _last_usage(text: bytes) -> Any:
    at = None
    for found in _USAGE.finditer(text):
        at = found.end()
    if at is None:
        return None
    try:
        return _DECODER.raw_decode(text[at:].decode("utf-8", "replace"))[0]
    except (ValueError, RecursionError):
        return None


def _payload(event: bytes) -> Any:
    """The JSON of an event's data, None for ``[DONE]``, comments and anything that is not JSON."""
    lines = [line[5:] for line in event.splitlines() if line.startswith(b"data:")]
    try:
        return json.loads(b"\n".join(lines)) if lines else None
    except (ValueError, RecursionError):
        return None


def _speaks(event: bytes) -> bool:
    """Whether an event carries generated content; a role alone, a comment or a ping does not."""
    said = _payload(event)
    if not isinstance(said, dict):
        return False
    choices = said.get("choices")
    if isinstance(choices, list):
        return any(_chosen(choice) for choice in choices if isinstance(choice, dict))
    kind = said.get("type")
    if isinstance(kind, str):
        return kind.endswith((".delta", "_delta")) and kind != "message_delta"
    # SGLang's /generate.
    return bool(said.get("text") or said.get("output_ids"))


def _chosen(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    if isinstance(delta, dict) and any(delta.get(name) for name in _SPOKEN):
        return True
    return bool(choice.get("text")) or choice.get("finish_reason") is not None


def _only_usage(event: bytes) -> bool:
    said = _payload(event)
    return isinstance(said, dict) and bool(said.get("usage")) and said.get("choices") == []
