"""`diag watch` in a real terminal: tmux runs it, resizes it and presses its keys."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

__all__ = ["Terminal", "environment", "now_of", "row_of", "tmux_path"]


class Terminal:
    """A tmux session of its own server, ``width`` by ``height`` characters."""

    def __init__(
        self, command: Sequence[str], *, width: int = 110, height: int = 40, folder: Path | None = None
    ) -> None:
        self._base = [tmux_path(), "-L", f"diag-{uuid.uuid4().hex[:8]}"]
        size = ["-x", str(width), "-y", str(height)]
        subprocess.run(
            [*self._base, "-f", "/dev/null", "new-session", "-d", *size, *command],
            check=True, env=environment(), timeout=20, cwd=folder,
        )  # fmt: skip

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        """End the session and all that runs in it."""
        subprocess.run([*self._base, "kill-server"], check=False, capture_output=True, timeout=20)

    def seen(self) -> str:
        """What is on the screen now; a line that was too wide for it is told whole, as one."""
        return "\n".join(line.rstrip() for line in self._tmux("capture-pane", "-p", "-J").splitlines())

    def shows(self, text: str, seconds: float = 40.0) -> str:
        """Wait until ``text`` is on the screen; the screen."""
        return self.until(lambda seen: text in seen, seconds)

    def until(self, true: Callable[[str], bool], seconds: float = 60.0) -> str:
        """Wait until the screen is as wanted; the screen."""
        ends = time.monotonic() + seconds
        while True:
            seen = self.seen()
            if true(seen):
                return seen
            assert time.monotonic() < ends, f"it never came:\n{seen}"
            time.sleep(0.2)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def _tmux(self, *arguments: str) -> str:
        ran = subprocess.run(
            [*self._base, *arguments], check=True, capture_output=True, text=True, timeout=20
        )
        return ran.stdout


def environment() -> dict[str, str]:
    """This process's, for a `diag` in any folder: a relative PYTHONPATH would lead nowhere there."""
    found = {**os.environ, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
    if path := os.environ.get("PYTHONPATH"):
        found["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in path.split(os.pathsep))
    return found


def tmux_path() -> str:
    """Path of tmux; the test is skipped without it, or fails in continuous integration."""
    found = shutil.which("tmux")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("tmux is not installed: apt-get install tmux")
        pytest.skip("tmux is not installed")
    return found


def row_of(screen: str, name: str) -> list[str]:
    """The columns of the first row that begins with ``name``; none without such a row."""
    row = next((line for line in screen.splitlines() if line.startswith(name)), "")
    return [part for part in re.split(r"\s{2,}", row.strip()) if part]


def now_of(screen: str, name: str) -> str:
    """What stands in the column "now" of a signal's row: between its course and what was before."""
    columns = row_of(screen, name)
    return columns[2] if len(columns) > 2 else ""
