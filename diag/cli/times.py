"""Times and lengths of time as people type them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, tzinfo

from diag.errors import UsageError

__all__ = ["duration_seconds", "moment"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_LATEST_UNIX_SECONDS = 1e10


def duration_seconds(text: str, option: str) -> float:
    """``"90s"``, ``"15m"``, ``"1h30m"``, ``"2d"`` in seconds; ``UsageError`` for anything else."""
    stripped = text.strip().lower()
    if not _DURATION.fullmatch(stripped):
        raise UsageError(f"{option} {text!r} is no length of time", hint="write 90s, 15m, 2h, 1h30m or 1d")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(stripped))
    if not 0 < seconds < 1e9:
        raise UsageError(f"{option} {text!r} is not a usable length of time", hint="write 90s, 15m, 2h or 1d")
    return seconds


def moment(text: str, option: str, local: tzinfo | None = None) -> float:
    """Unix seconds of ``text``: ISO 8601 with a zone, or unix seconds or milliseconds.

    A time without a zone means different moments to different people: ``UsageError``, with the
    line that says how to write it. ``local`` is the zone offered there (default: this machine's)."""
    stripped = text.strip()
    try:
        number = float(stripped)
    except ValueError:
        return _iso(stripped, option, local)
    if not math.isfinite(number) or number <= 0:
        raise UsageError(f"{option} {text!r} is no time", hint="write unix seconds or 2026-11-29T10:00:00Z")
    # Dashboards hand out milliseconds; as seconds they would lie three centuries ahead.
    return number / 1000 if number > _LATEST_UNIX_SECONDS else number


def _iso(text: str, option: str, local: tzinfo | None) -> float:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is no time",
            hint="write 2026-11-29T10:00:00Z, with an offset, or unix seconds",
        ) from None
    if parsed.tzinfo is not None:
        return parsed.timestamp()
    bare = parsed.isoformat(timespec="seconds")
    with_offset = parsed.replace(tzinfo=local) if local else parsed.astimezone()
    here = with_offset.isoformat(timespec="seconds")
    choices = f"{bare}Z for UTC"
    if with_offset.utcoffset() != UTC.utcoffset(None):
        choices += f" or {here} for this machine's zone"
    else:
        choices += f" or, say, {bare}+03:00"
    raise UsageError(f"{option} {text!r} has no time zone", hint=f"write {choices}")
