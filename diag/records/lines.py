"""Lines of a file, plain or gzipped, as they can still be read.

A capture that was cut off is the rule in an incident, so damage ends the reading, never loses it.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from diag.errors import RecordsError

__all__ = ["LINE_BYTES_MAX", "Lines"]

LINE_BYTES_MAX = 64 * 1024 * 1024
"""A longer line is no record; it is passed over so that it cannot fill the memory."""

_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


class Lines:
    """Iterates over ``(line number, bytes)`` of one file; afterwards ``notes`` says what was odd.

    Compression is told from the content, not the name. A line longer than ``line_bytes_max`` comes
    out empty-handed: as ``None`` in place of the bytes.
    """

    def __init__(self, path: Path, *, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self.path = path
        self.notes: list[str] = []
        self._line_bytes_max = line_bytes_max

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        try:
            raw = self.path.open("rb")
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise RecordsError(
                f"cannot read {self.path}: {why}", hint="check the path and its rights"
            ) from error
        with raw:
            yield from self._decompressed(raw)

    def _decompressed(self, raw: io.BufferedReader) -> Iterator[tuple[int, bytes | None]]:
        packed = raw.peek(2)[:2] == _GZIP_MAGIC
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else cast(BinaryIO, raw)
        number = 0
        try:
            for number, line in self._split(stream):
                yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.notes.append(
                f"{self.path} is damaged after line {number} ({error}); the lines before are used"
            )
        except OSError as error:
            self.notes.append(f"{self.path} could not be read past line {number} ({error.strerror or error})")

    def _split(self, stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
        limit = self._line_bytes_max
        number = 0
        while line := stream.readline(limit):
            number += 1
            if len(line) == limit and not line.endswith(b"\n"):
                while (rest := stream.readline(limit)) and not rest.endswith(b"\n"):
                    pass
                yield number, None
                continue
            yield number, line.removeprefix(_BOM) if number == 1 else line
