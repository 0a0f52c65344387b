"""The fast way through a line of the plain shape: msgspec reads it into typed fields (1 µs)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from diag_exporter.sessions.feeds.presets import PLAIN_FIELDS

__all__ = ["Unfit", "typed_reader"]

_TEXTS = frozenset(("session", "tenant", "model", "instance", "request_id", "status", "session_source"))
_SECONDS = frozenset(("ttft_seconds", "queue_seconds", "duration_seconds"))
_DEFAULTS = {"tenant": "", "model": "", "instance": "", "status": "ok"}


class Unfit(Exception):
    """The line has another shape; the slow way may still read it."""


def typed_reader(fields: Mapping[str, str]) -> Callable[[bytes], tuple[Any, ...]] | None:
    """A reader that turns a line into the values of ``PLAIN_FIELDS`` or raises ``Unfit``.

    ``fields``: plain field -> its name in the line. None where msgspec is not installed.
    """
    try:
        import msgspec
    except ImportError:
        return None
    # The same limits as in ``presets``: what is outside goes the slow way, and is dropped there.
    text = Annotated[str, msgspec.Meta(max_length=512)]
    seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
    kinds = {
        name: text if name in _TEXTS else seconds if name in _SECONDS else count for name in PLAIN_FIELDS
    }
    shape = msgspec.defstruct(
        "PlainLine",
        [
            ("ts", Annotated[float, msgspec.Meta(gt=0, le=1e11)]),
            *((name, kinds[name] | None, _DEFAULTS.get(name)) for name in PLAIN_FIELDS[1:]),
        ],
        rename=dict(fields) or None,
        gc=False,
    )  # fmt: skip
    decode, values = msgspec.json.Decoder(shape).decode, msgspec.structs.astuple
    refused = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

    def read(line: bytes) -> tuple[Any, ...]:
        try:
            return values(decode(line))
        except refused as error:
            raise Unfit from error

    return read
