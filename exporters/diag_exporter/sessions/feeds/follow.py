"""Follow a file that somebody else writes, rotates and truncates.

Only whole lines come out. A line longer than the limit is thrown away as it comes, so that memory stays
bounded; a last line without its end waits for it.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

__all__ = ["Follower", "FollowerState"]

_CHUNK_BYTES = 1 << 20
_LINE_BYTES_MAX = 16 << 20
_TAIL_BYTES = 64


@dataclass(slots=True)
class FollowerState:
    """How following goes. ``error``: why the file cannot be read, in words; "" when it can."""

    error: str = ""
    too_long: int = 0
    rotations: int = 0
    truncations: int = 0


class Follower:
    """Reads what was appended to ``path`` since the last call.

    ``from_start``: read what is in the file already; otherwise only what comes from now on. A file
    that appears later, or takes the place of the followed one, is always read from its start.
    """

    def __init__(
        self, path: Path, *, from_start: bool = False, line_bytes_max: int = _LINE_BYTES_MAX
    ) -> None:
        self.path = path
        self.state = FollowerState()
        self._line_max = line_bytes_max
        self._file: BinaryIO | None = None
        self._part = b""
        self._dropping = False
        self._tail = b""
        self._open(at_end=not from_start)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def size(self) -> int:
        """Bytes that are in the file now, 0 when it cannot be read."""
        return os.fstat(self._file.fileno()).st_size if self._file is not None else 0

    def position(self) -> int:
        """Bytes of the present file that were read."""
        return self._file.tell() if self._file is not None else 0

    def read(self) -> list[bytes]:
        """New whole lines (without their ends) from at most one chunk; empty when there are none."""
        try:
            if self._file is None:
                self._open(at_end=False)
            if self._file is None:
                return []
            self._mind_truncation(self._file)
            chunk = self._file.read(_CHUNK_BYTES)
            if chunk:
                self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
                return self._lines(chunk)
            return self.read() if self._mind_rotation(self._file) else []
        except OSError as error:
            self.state.error = _reason(error)
            self.close()
            return []

    def _open(self, *, at_end: bool) -> None:
        try:
            # Non-blocking, so that a named pipe in the log's place cannot hold the exporter.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            file = os.fdopen(descriptor, "rb", buffering=0)
        except OSError as error:
            self.state.error = _reason(error)
            return
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            self.state.error = "is a pipe or a device, not a file"
            file.close()
            return
        self._file = file
        self._part, self._tail, self._dropping = b"", b"", False
        self.state.error = ""
        if at_end:
            self._skip_to_end(file)

    def _skip_to_end(self, file: BinaryIO) -> None:
        end = file.seek(0, os.SEEK_END)
        start = max(end - _TAIL_BYTES, 0)
        self._tail = os.pread(file.fileno(), end - start, start)
        # In the middle of a line: its rest is of no use.
        self._dropping = bool(self._tail) and not self._tail.endswith(b"\n")

    def _mind_truncation(self, file: BinaryIO) -> None:
        """Start anew when the file is shorter than what was read, or no longer holds what was read
        last (emptied and filled again between two looks)."""
        position, size = file.tell(), os.fstat(file.fileno()).st_size
        if size == position:
            return
        if size > position:
            held = os.pread(file.fileno(), len(self._tail), position - len(self._tail))
            if held == self._tail:
                return
        self.state.truncations += 1
        file.seek(0)
        self._part, self._tail, self._dropping = b"", b"", False

    def _mind_rotation(self, file: BinaryIO) -> bool:
        """At the end of the file: go on to the one that has its name now; whether there is another."""
        try:
            there, here = os.stat(self.path), os.fstat(file.fileno())
        except FileNotFoundError:
            return False  # moved away, the new one not made yet; the old one may still be written to
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
            return False
        self.state.rotations += 1
        self.close()
        self._open(at_end=False)
        return self._file is not None

    def _lines(self, chunk: bytes) -> list[bytes]:
        *whole, rest = chunk.split(b"\n")
        if whole:
            whole[0] = self._part + whole[0]
            self._part = b""
            if self._dropping:
                self._dropping = False
                del whole[0]
        self._part += rest
        if len(self._part) > self._line_max:
            self._part = b""
            # Once a line, however many chunks it has.
            self.state.too_long += not self._dropping
            self._dropping = True
        elif self._dropping:
            self._part = b""
        return [line for line in whole if line]


def _reason(error: OSError) -> str:
    if error.errno == errno.EISDIR:
        return "is a folder, not a file"
    return (error.strerror or str(error)).lower()
