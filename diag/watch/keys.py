"""Single keys from a terminal, without waiting; nothing at all where stdin is none."""

from __future__ import annotations

import os
import re
import select
import sys
from types import TracebackType
from typing import Any

__all__ = ["Keys"]

# Home sends ESC [ 1 ~, an arrow ESC [ A: none of it is a digit or a letter that somebody typed.
_SEQUENCES = re.compile(r"\x1b(?:\[[0-9;]*[ -/]*[@-~]|O.)")


class Keys:
    """A context in which ``pressed`` gives what was typed since; the terminal is set back at its end."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._saved: Any = None

    def __enter__(self) -> Keys:
        try:
            import termios
            import tty

            number = sys.stdin.fileno()
            if os.isatty(number):
                self._saved = termios.tcgetattr(number)
                tty.setcbreak(number)
                self._number = number
        except (ImportError, OSError, ValueError):
            self._number = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        """Set the terminal back, however the block ended."""
        if self._number is not None:
            import termios

            termios.tcsetattr(self._number, termios.TCSADRAIN, self._saved)

    def pressed(self, wait_seconds: float) -> str:
        """What was typed within ``wait_seconds``; "" for nothing."""
        if self._number is None:
            import time

            time.sleep(wait_seconds)
            return ""
        ready, _, _ = select.select([self._number], [], [], wait_seconds)
        if not ready:
            return ""
        return _SEQUENCES.sub("", os.read(self._number, 64).decode("utf-8", "ignore"))
