"""Where answers go: stdout or a file; progress and notes to stderr."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from diag.cli.config import Defaults
from diag.cli.options import Answer
from diag.errors import DiagError, UsageError

if TYPE_CHECKING:
    from diag.renderers import RenderOptions

__all__ = ["ProgressLine", "chosen_format", "deliver", "layout", "say"]

_PIPED_WIDTH = 100


def say(text: str) -> None:
    """One line to the operator, beside the answer."""
    print(text, file=sys.stderr, flush=True)


def chosen_format(answer: Answer, defaults: Defaults) -> str:
    """The output asked for: ``--json``, ``--format``, the file's ending, ``diag.toml``, console."""
    from diag.renderers import RENDERERS, format_for

    if answer.json:
        if answer.format not in (None, "json"):
            raise UsageError(
                f"--json and --format {answer.format} exclude each other", hint="give one of them"
            )
        return "json"
    by_ending = format_for(Path(answer.output)) if answer.output and not answer.format else None
    chosen = answer.format or by_ending or defaults.format or "console"
    if chosen not in RENDERERS:
        raise UsageError(f"unknown format {chosen!r}", hint=f"choose {', '.join(RENDERERS)}")
    return chosen


def layout(answer: Answer, defaults: Defaults) -> RenderOptions:
    """Width and colour of whatever the answer goes to."""
    from diag.renderers import RenderOptions

    to_terminal = answer.output is None and sys.stdout.isatty()
    # shutil honours COLUMNS, for pipes too.
    width = (
        shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns if to_terminal or "COLUMNS" in os.environ else 0
    )
    color = to_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return RenderOptions(width=width or _PIPED_WIDTH, color=color, top=answer.top or defaults.top or 3)


def deliver(text: str, answer: Answer) -> None:
    """Write the answer; a reader who has gone is no error."""
    if answer.output is None:
        _to_stdout(text)
        return
    path = Path(answer.output)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DiagError(f"cannot write {path}: {error.strerror or error}", hint="choose another -o") from None
    say(f"wrote {path}")


def _to_stdout(text: str) -> None:
    try:
        stream = getattr(sys.stdout, "buffer", None)
        if stream is None:
            sys.stdout.write(text)
        else:
            # The terminal's encoding may be ASCII; an arrow must not end the answer.
            encoding = sys.stdout.encoding or "utf-8"
            stream.write(text.encode(encoding, "replace"))
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit; that must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ProgressLine:
    """One line on stderr that is rewritten; nothing at all when stderr is no terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = 0

    def __call__(self, text: str) -> None:
        """Show ``text`` in place of the last one."""
        if not self._live:
            return
        width = shutil.get_terminal_size().columns - 1
        line = text[:width]
        sys.stderr.write("\r" + line + " " * (self._shown - len(line)))
        sys.stderr.flush()
        self._shown = len(line)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r" + " " * self._shown + "\r")
            sys.stderr.flush()
            self._shown = 0
