"""What an answer tells while it passes: first token, usage, failure. Nothing of its text is kept.

The bytes go through untouched. Only where the proxy itself asked a stream for its usage is one event
taken out again, the one that carries the usage and no choice.
"""

from __future__ import annotations

import json
import re
from collections import deque
from typing import Any, Protocol

__all__ = ["BodyWatch", "NoWatch", "StreamWatch", "Watch", "usage_counts"]

# A quotation mark inside text is escaped in JSON, so none of these can match within an answer's words.
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_FAILED = re.compile(rb'(?:^|\n)data: ?\{\s*"error"|"type"\s*:\s*"(?:error|response\.failed)"')
# A chat's token, told without parsing; whatever this misses is parsed.
_SAYS = re.compile(rb'"delta":\s*\{[^{}]*"content":\s*"[^"]')
_DONE = re.compile(rb'(?:^|\n)data: ?(?:\[DONE\]|\{\s*"type"\s*:\s*"(?:message_stop|response\.completed)")')
_BOUNDARY = re.compile(rb"\r?\n\r?\n")
_EVENT = re.compile(rb".+?(?:\r?\n\r?\n|\Z)", re.DOTALL)
# An event that is not complete after so many bytes is no longer waited for.
_HELD_BYTES = 256 * 1024
_LAST_BLOCKS = 4
_KEPT_BYTES = 64 * 1024
# vLLM puts prompt_logprobs and prompt_token_ids behind usage: the tail must reach over them.
_TAIL_BYTES = 256 * 1024
_DECODER = json.JSONDecoder()
_SPOKEN = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal", "audio")


class Watch(Protocol):
    """Sees each piece of an answer. ``first_token``: on the caller's clock, None until one came;
    ``pieces``: events with data so far, a lower bound of the tokens."""

    first_token: float | None
    pieces: int

    def feed(self, data: bytes, now: float) -> bytes:
        """What goes to the client now for ``data`` that came at ``now``."""

    def rest(self) -> bytes:
        """What was held back, at the end of the answer."""

    def done(self) -> bool:
        """Whether the answer's last event has come, if its kind has one."""

    def failed(self) -> bool:
        """Whether the answer itself told of an error."""

    def usage(self) -> dict[str, int]:
        """Counts the answer stated; a count it did not state is absent."""


class NoWatch:
    """An answer nothing can be read from: an error, a compressed body, a file."""

    __slots__ = ("first_token", "pieces")

    def __init__(self) -> None:
        self.first_token: float | None = None
        self.pieces = 0

    def feed(self, data: bytes, now: float) -> bytes:  # noqa: ARG002
        """Pass on."""
        return data

    def rest(self) -> bytes:
        """Nothing is held."""
        return b""

    def done(self) -> bool:
        """Only the connection tells."""
        return False

    def failed(self) -> bool:
        """Only the status tells."""
        return False

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
    """Server-sent events. ``strip``: take out the usage event that the proxy asked for.

    Usage, end and failure stand in an answer's last events (Anthropic's input count in its first): those
    are kept as they pass and read at the end, so that a piece costs next to nothing."""

    __slots__ = ("_first", "_held", "_last", "_strip", "first_token", "pieces")

    def __init__(self, strip: bool) -> None:
        self.first_token: float | None = None
        self.pieces = 0
        self._strip = strip
        self._held = b""
        self._first = b""
        self._last: deque[bytes] = deque(maxlen=_LAST_BLOCKS)

    def feed(self, data: bytes, now: float) -> bytes:
        """Almost every piece is whole events: counted and kept."""
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

    def done(self) -> bool:
        """``[DONE]``, or the last event of Anthropic's and of the Responses API."""
        return any(map(_DONE.search, self._last))

    def failed(self) -> bool:
        """An engine that fails within a stream says so in an event; the status was 200 long before."""
        return any(map(_FAILED.search, self._last))

    def usage(self) -> dict[str, int]:
        """Of the last event with usage; counts only the first one had (Anthropic's input) stay."""
        found = usage_counts(_last_usage(self._first))
        for block in self._last:
            found |= usage_counts(_last_usage(block))
        return found

    def _events(self, block: bytes, now: float) -> bytes:
        self.pieces += block.count(b"\ndata:") + block.startswith(b"data:")
        self._last.append(block if len(block) <= _KEPT_BYTES else block[-_KEPT_BYTES:])
        if self.first_token is None:
            self._first = self._first or block[:_KEPT_BYTES]
            if _SAYS.search(block) or any(map(_speaks, _events_of(block))):
                self.first_token = now
        if not self._strip or b'"usage"' not in block or _USAGE.search(block) is None:
            return block
        return b"".join(event for event in _events_of(block) if not _only_usage(event))


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


def _events_of(block: bytes) -> list[bytes]:
    return [block] if block.count(b"\n") == 2 and block.endswith(b"\n\n") else _EVENT.findall(block)


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
    if event.startswith(b"data:") and event.count(b"\n") <= 2:
        said = event[5:]
    else:
        said = b"\n".join(line[5:] for line in event.splitlines() if line.startswith(b"data:"))
    try:
        return _DECODER.decode(said.decode()) if said else None
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
