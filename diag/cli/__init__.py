"""The command line. Exit codes: 0 it ran, 1 it could not do the job, 2 wrong usage, 10 ``--fail-on``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from diag.errors import DiagError

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``diag`` with ``arguments`` (default: those of the process) and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = _run(given)
    _flush()
    raise SystemExit(code)


def _run(given: list[str]) -> int:
    debug = "--debug" in given
    try:
        return _invoke(given)
    except KeyboardInterrupt:
        return _complain("interrupted", _INTERRUPTED)
    except DiagError as error:
        if debug:
            _traceback()
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:
        return 0
    except MemoryError:
        return _complain("out of memory; ask for a shorter window or fewer series (--match)", 1)
    except Exception as error:  # the last line of defence: no traceback at three in the morning
        return _unexpected(error, debug)


def _invoke(given: list[str]) -> int:
    import typer.main

    from diag.cli.app import app

    result = typer.main.get_command(app).main(given, prog_name="diag", standalone_mode=False)
    code = result if isinstance(result, int) else 0
    return _complain("interrupted", code) if code == _INTERRUPTED else code


def _unexpected(error: Exception, debug: bool) -> int:
    # The command parser's errors have no common public class across typer's releases.
    message = getattr(error, "format_message", None)
    if callable(message):
        return _wrong_usage(error, str(message()))
    if type(error).__name__ == "Abort":
        return _complain("interrupted", _INTERRUPTED)
    if debug:
        _traceback()
        return _complain(f"this is a bug: {type(error).__name__}", 1)
    said = " ".join(str(error).split())[:200]
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return _complain(f"this is a bug in diag ({what}); run again with --debug and report the traceback", 1)


def _wrong_usage(error: Exception, message: str) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message or (context.get_help() if context else ""))
        return 0
    path = context.command_path if context is not None else "diag"
    text = " ".join(message.split()).rstrip(".")
    return _complain(f"{text}; see `{path} --help`", int(getattr(error, "exit_code", 2)))


def _complain(text: str, code: int) -> int:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    print(f"diag: {line}", file=sys.stderr)
    return code


def _traceback() -> None:
    import traceback

    traceback.print_exc()


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone; Python's own flush at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
