"""The fast way through lines of the plain shape: msgspec reads them into typed fields (1 µs a line).

llm-diag depends on msgspec anyway; where it is missing, the standard library reads every line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from diag_exporter.sessions.events import Event
from diag_exporter.sessions.feeds.presets import request_hash
from diag_exporter.sessions.identity import Identifier

__all__ = ["TypedReader", "typed_reader"]

TypedReader = Callable[[Sequence[bytes], Identifier], tuple[list[Event], list[bytes]]]
"""Events of lines, and the lines of another shape, which the slow way may still read."""


def typed_reader(fields: Mapping[str, str], *, with_ids: bool = True) -> TypedReader | None:
    """``fields``: plain field -> its name in the line. ``with_ids``: request ids are wanted, for joining.
    None where msgspec is not installed."""
    try:
        import msgspec
    except ImportError:
        return None
    # The same limits as in ``presets``: what is outside goes the slow way, and is dropped there.
    text = Annotated[str, msgspec.Meta(max_length=512)]
    seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None
    count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] | None
    # In the order of ``Event``.
    shape: list[Any] = [
        ("ts", Annotated[float, msgspec.Meta(gt=0, le=1e11)]), ("model", text, ""), ("tenant", text, ""),
        ("session", text, ""), ("session_source", text, ""), ("prompt_tokens", count, None),
        ("cached_tokens", count, None), ("output_tokens", count, None), ("ttft_seconds", seconds, None),
        ("queue_seconds", seconds, None), ("duration_seconds", seconds, None),
        ("status", Literal["ok", "error", "aborted"], "ok"), ("tokens_after_abort", count, None),
        ("instance", text, ""), ("repeated_tokens", count, None), ("request_id", text, ""),
    ]  # fmt: skip
    plain = msgspec.defstruct("PlainLine", shape, rename=dict(fields) or None, gc=False)
    decode, values = msgspec.json.Decoder(plain).decode, msgspec.structs.astuple
    refused = (msgspec.MsgspecError, UnicodeError, RecursionError)
    make = tuple.__new__

    def read(lines: Sequence[bytes], identifier: Identifier) -> tuple[list[Event], list[bytes]]:
        keyed, number = identifier.keyed.copy, int.from_bytes
        events: list[Event] = []
        unfit: list[bytes] = []
        key: int | None
        for line in lines:
            try:
                row = values(decode(line))
            except refused:
                unfit.append(line)
                continue
            (ts, model, tenant, session, source, prompt, cached, output, ttft, queue, duration, status, after,
             instance, repeated, request_id) = row  # fmt: skip
            if session:  # ``Identifier.hash``, written out: a call less a line
                state = keyed()
                state.update(session.encode())
                key, source = number(state.digest(), "big"), source or "log"
            else:
                key, source = None, "none"
            request = request_hash(request_id) if with_ids and request_id else 0
            events.append(
                make(Event, (ts, model, tenant, key, source, prompt, cached, output, ttft, queue, duration,
                             status, after, instance, repeated, request))
            )  # fmt: skip
        return events, unfit

    return read
