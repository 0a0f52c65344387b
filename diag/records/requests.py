"""Reads request logs of any common shape into one frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from diag.errors import RecordsError, UsageError
from diag.model import Window
from diag.records.decode import Unusable, decode_object, dig, number_of, seconds_of
from diag.records.lines import Lines
from diag.records.presets import PRESETS, guess_preset
from diag.records.record import COLUMNS, NUMBERS, TEXTS, BadLines, RequestsRead, build_frame
from diag.records.spans import SpanRows
from diag.records.suggest import field_paths, suggest_mapping

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_requests"]

_SNIFFED_LINES = 20

# The shape every clean line of our own format has; anything else takes the lenient road.
_Clean = msgspec.defstruct(
    "_Clean",
    [
        ("ts", float),
        *((name, float | None, None) for name in NUMBERS[1:]),
        *((name, str | None, None) for name in TEXTS if name != "source"),
    ],
    gc=False,
)
_CLEAN_COLUMNS = tuple(name for name in COLUMNS if name != "source")
_SECONDS_MAX = 1e11


@dataclass(slots=True)
class _Reading:
    """What one call gathers over all its files."""

    mapping: Mapping[str, str]
    bad: BadLines = field(default_factory=BadLines)
    notes: list[str] = field(default_factory=list)
    columns: dict[str, list[object]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    read: int = 0
    skipped: int = 0
    odd: Counter[str] = field(default_factory=Counter)
    mapped: set[str] = field(default_factory=set)


def read_requests(
    paths: Iterable[Path | str],
    *,
    preset: str | None = None,
    mapping: Mapping[str, str] | None = None,
    window: Window | None = None,
) -> RequestsRead:
    """Read request logs (plain or gzipped JSON lines) into one frame ordered by arrival.

    ``preset`` is one of ``PRESETS``, guessed for each file from its first lines when None.
    ``mapping`` overrides single columns: ``{"prompt_tokens": "usage.prompt_tokens"}``, dotted paths
    into the line; a path that ends in ``_ms`` or ``_us`` is scaled where the column is in seconds.
    Records outside ``window`` are counted but left out. A bad line is counted and named, never fatal.

    Raises ``UsageError`` for an unknown preset or column, ``RecordsError`` when a file cannot be
    opened or holds objects of which no field is known (with a mapping that would likely work).
    """
    if preset is not None and preset not in PRESETS:
        raise UsageError(f"no request preset is called {preset!r}", hint=f"use one of {', '.join(PRESETS)}")
    for name in mapping or {}:
        if name not in COLUMNS or name == "source":
            known = ", ".join(column for column in COLUMNS if column != "source")
            raise UsageError(f"a request record has no field {name!r} to map", hint=f"use one of {known}")
    reading = _Reading(dict(mapping or {}))
    for path in map(Path, paths):
        _read_file(path, preset, reading)
    return _finish(reading, window)


def _read_file(path: Path, preset: str | None, reading: _Reading) -> None:
    chosen = preset or _sniff(path, reading.mapping)
    lines = Lines(path)
    before = reading.bad.total
    seen = len(reading.columns["ts"])
    if chosen == "vllm_spans":
        _read_spans(lines, reading)
    elif chosen == "jsonl" and not reading.mapping:
        _read_clean(lines, reading)
    else:
        _read_preset(lines, chosen, reading)
    reading.notes += lines.notes
    if reading.bad.total > before and len(reading.columns["ts"]) == seen:
        reading.notes.append(f"{path}: none of its {reading.bad.total - before} lines is a request record")


def _sniff(path: Path, mapping: Mapping[str, str]) -> str:
    """The preset of a file by its first objects; raises ``RecordsError`` when they say nothing."""
    votes: Counter[str] = Counter()
    objects: list[dict[str, object]] = []
    for number, line in Lines(path):
        if line is None or not line.strip():
            continue
        try:
            objects.append(decode_object(line))
        except Unusable:
            pass
        else:
            if guess := guess_preset(objects[-1]):
                votes[guess] += 1
        if number >= _SNIFFED_LINES:
            break
    if votes:
        return votes.most_common(1)[0][0]
    if not objects or any(dig(item, mapping.get("ts", "ts")) is not None for item in objects):
        return "jsonl"
    raise _nothing_known(path, objects)


def _nothing_known(path: Path, objects: list[dict[str, object]]) -> RecordsError:
    paths = field_paths(objects)
    shown = ", ".join(paths[:12]) + (", …" if len(paths) > 12 else "")
    suggestion = suggest_mapping(paths)
    mapping = suggestion or "ts=…,prompt_tokens=… with the paths of its fields"
    what = f"no field of {path} is known as a request's arrival (found: {shown or 'none'})"
    return RecordsError(what, hint=f"try --requests-map {mapping}")


def _usable(lines: Lines, reading: _Reading) -> Iterator[tuple[int, bytes]]:
    for number, line in lines:
        if line is None:
            reading.bad.add(lines.path, number, "the line is longer than any record")
        elif line.strip():
            yield number, line


def _read_spans(lines: Lines, reading: _Reading) -> None:
    rows = SpanRows()
    for number, line in _usable(lines, reading):
        try:
            rows.add_line(decode_object(line))
        except Unusable as error:
            reading.bad.add(lines.path, number, str(error))
    _append_columns(rows.records(), rows.length, reading)
    reading.skipped += rows.skipped


def _append_columns(rows: Mapping[str, list[object]], length: int, reading: _Reading) -> None:
    for name, values in reading.columns.items():
        values.extend(rows.get(name) or [None] * length)
    reading.read += length


def _read_clean(lines: Lines, reading: _Reading) -> None:
    """Our own format, the fast way; a line that is not clean goes the lenient way."""
    decode, arrival_of = msgspec.json.Decoder(_Clean).decode, attrgetter("ts")
    clean: list[object] = []
    slow: list[tuple[int, bytes]] = []
    for number, line in _usable(lines, reading):
        try:
            record = decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            slow.append((number, line))
            continue
        if 0 < arrival_of(record) < _SECONDS_MAX:
            clean.append(record)
        else:
            slow.append((number, line))
    columns = zip(*map(attrgetter(*_CLEAN_COLUMNS), clean), strict=True)
    rows: dict[str, list[object]] = {
        name: list(one) for name, one in zip(_CLEAN_COLUMNS, columns, strict=False)
    }
    _append_columns({**rows, "source": ["jsonl"] * len(clean)}, len(clean), reading)
    _read_each(slow, lines.path, "jsonl", reading)


def _read_preset(lines: Lines, preset: str, reading: _Reading) -> None:
    _read_each(_usable(lines, reading), lines.path, preset, reading)


def _read_each(lines: Iterable[tuple[int, bytes]], path: Path, preset: str, reading: _Reading) -> None:
    convert = PRESETS[preset]
    lenient = "ts" in reading.mapping
    rows: list[dict[str, object]] = []
    for number, line in lines:
        try:
            found = decode_object(line)
            try:
                record = convert(found)
            except Unusable:
                if not lenient:
                    raise
                record = {}
            if record is None:
                reading.skipped += 1
                continue
            if reading.mapping:
                _map_fields(record, found, reading)
            if record.get("ts") is None:
                raise Unusable("no arrival time")
            rows.append(record)
        except Unusable as error:
            reading.bad.add(path, number, str(error))
    present = set[str]().union(*rows)
    columns = {name: _column(name, rows, reading) for name in _CLEAN_COLUMNS if name in present}
    _append_columns({**columns, "source": [preset] * len(rows)}, len(rows), reading)


def _map_fields(record: dict[str, object], found: Mapping[str, object], reading: _Reading) -> None:
    for column, path in reading.mapping.items():
        value = dig(found, path)
        if value is None:
            continue
        reading.mapped.add(column)
        record[column] = seconds_of(value) if column == "ts" else _scaled(column, path, value)


def _scaled(column: str, path: str, value: object) -> object:
    factor = 1e-3 if path.endswith(("_ms", "Ms")) else 1e-6 if path.endswith(("_us", "Us")) else 1.0
    if factor == 1.0 or not column.endswith("_seconds"):
        return value
    number = number_of(value)
    return None if number is None else number * factor


def _column(name: str, rows: Sequence[Mapping[str, object]], reading: _Reading) -> list[object]:
    values = [row.get(name) for row in rows]
    if name in NUMBERS:
        return [
            value if type(value) is float or value is None else _number(name, value, reading)
            for value in values
        ]
    return [value if type(value) is str or value is None else _text(value) for value in values]


def _number(name: str, value: object, reading: _Reading) -> float | None:
    try:
        return number_of(value)
    except Unusable:
        reading.odd[name] += 1
        return None


def _text(value: object) -> str | None:
    return None if isinstance(value, dict | list) else str(value)


def _finish(reading: _Reading, window: Window | None) -> RequestsRead:
    frame, notes = build_frame(reading.columns, reading.read)
    reading.notes += notes
    for name, count in reading.odd.items():
        reading.notes.append(f"{count} values of {name} are no numbers and count as unknown")
    unmapped = [f"{name}={path}" for name, path in reading.mapping.items() if name not in reading.mapped]
    if unmapped and reading.read + reading.bad.total:
        reading.notes.append(f"no line has what --requests-map names: {', '.join(unmapped)}")
    if reading.skipped:
        reading.notes.append(f"{reading.skipped} lines are no inference requests and were passed over")
    if reading.bad.total:
        first = reading.bad.kept[0]
        where = f"{first.file}:{first.line}"
        reading.notes.append(f"{reading.bad.total} bad lines, the first: {where}: {first.why}")
    frame = _cut(frame, window, reading.notes)
    return RequestsRead(
        frame, reading.read, tuple(reading.bad.kept), tuple(reading.notes), reading.bad.total, reading.skipped
    )


def _cut(frame: pd.DataFrame, window: Window | None, notes: list[str]) -> pd.DataFrame:
    if window is None:
        return frame
    inside = frame[(frame["ts"] >= window.start) & (frame["ts"] <= window.end)].reset_index(drop=True)
    if len(inside) < len(frame):
        notes.append(f"{len(frame) - len(inside)} of {len(frame)} request records lie outside the window")
    return inside
