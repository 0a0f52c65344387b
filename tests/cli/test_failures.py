"""Whatever goes wrong is one line on stderr and the right exit code; stdout stays empty."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diag import api
from diag.errors import DiagError, NoData

Diag = Callable[..., Any]


def _only_line(ran: Any) -> str:
    assert ran.out == ""
    assert ran.err.startswith("diag: ")
    assert ran.err.count("\n") == 1
    line: str = ran.err
    return line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["triage"], "no source given; name a URL"),
        (["triage", "x", "--from", "2026-11-29T10:00"], "has no time zone; write 2026-11-29T10:00:00Z"),
        (["triage", "x", "--from", "1795985842", "--to", "1795985000"], "--to is not after --from"),
        (["triage", "x", "--from", "2199-01-01T00:00:00Z"], "in the future"),
        (["triage", "x", "--last", "soon"], "no length of time"),
        (["triage", "x", "--match", "prod"], "write label=value"),
        (["triage", "x", "--requests", "gone.jsonl"], "does not exist"),
        (["report", "x", "-o", "x.pdf"], "x.pdf is no report"),
        (["triage", "x", "-f", "yaml"], "choose console, json, markdown"),
        (["triage", "x", "--json", "-f", "markdown"], "exclude each other"),
        (["triage", "x", "--top", "0"], "see `diag triage --help`"),
        (["triage", "x", "--top", "many"], "see `diag triage --help`"),
        (["triage", "x", "--frm", "1"], "--frm"),
        (["triage", "x", "--fail-on", "everything"], "everything"),
        (["triage", "localhost:9090"], "write http://localhost:9090"),
        (["triage", "ftp://host/x"], "ftp:// is no kind of source"),
        (["triage", "http://"], "not an http"),
        (["record", "x"], "-o"),
        (["nothing"], "nothing"),
        (["demo", "nothing"], "no shipped incident is called 'nothing'"),
        (["explain", "context_grwth"], "did you mean context_growth"),
    ],
)
def test_wrong_usage_is_exit_2(diag: Diag, arguments: list[str], says: str) -> None:
    ran = diag(*arguments)
    assert says in _only_line(ran)
    assert ran.code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["triage", "gone.tar.gz"], "gone.tar.gz does not exist"),
        (["triage", "http://127.0.0.1:1"], "cannot reach http://127.0.0.1:1: connection refused"),
        (["triage", "http://me:s3cret@127.0.0.1:1/?token=s3cret"], "connection refused"),
        (["check", "http://127.0.0.1:1/metrics"], "connection refused"),
    ],
)
def test_what_cannot_be_done_is_exit_1(diag: Diag, arguments: list[str], says: str) -> None:
    ran = diag(*arguments)
    line = _only_line(ran)
    assert says in line
    assert "s3cret" not in line
    assert ran.code == 1


def test_an_unknown_key_in_diag_toml_is_exit_2(diag: Diag, tmp_path: Path) -> None:
    (tmp_path / "diag.toml").write_text("souces = []")
    ran = diag("triage", "x")
    assert "unknown key 'souces'" in _only_line(ran)
    assert ran.code == 2


def test_an_answer_that_cannot_be_written_is_exit_1(diag: Diag, tmp_path: Path) -> None:
    ran = diag("explain", "-o", str(tmp_path / "no" / "folder.md"))
    assert "cannot write" in _only_line(ran)
    assert ran.code == 1


def test_a_bug_is_one_line_and_a_traceback_only_with_debug(
    diag: Diag, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("first\nsecond \x1b[31m")

    monkeypatch.setattr(api, "cards", broken)
    ran = diag("explain")
    line = _only_line(ran)
    assert "this is a bug in diag (RuntimeError: first second" in line
    assert "--debug" in line
    assert "\x1b" not in line
    assert ran.code == 1
    loud = diag("explain", "--debug")
    assert "Traceback" in loud.err
    assert loud.code == 1


def test_a_known_error_shows_its_traceback_only_with_debug(
    diag: Diag, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing() -> None:
        raise NoData("nothing here", hint="look there")

    monkeypatch.setattr(api, "cards", nothing)
    assert _only_line(diag("explain")) == "diag: nothing here; look there\n"
    assert "Traceback" in diag("explain", "--debug").err


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "out of memory"),
        (DiagError("two\nlines"), 1, "two lines"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_other_ends(
    diag: Diag, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, says: str
) -> None:
    def end() -> None:
        raise error

    monkeypatch.setattr(api, "cards", end)
    ran = diag("explain")
    assert ran.code == code
    assert ran.err.startswith(f"diag: {says}" if says else "")
    assert ran.err.count("\n") == (1 if says else 0)


def _spawn(*arguments: str, folder: Path, **options: Any) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [sys.executable, "-m", "diag", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root)},
        text=True,
        stderr=subprocess.PIPE,
        # Whoever runs the tests in the background of a shell has them ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def test_a_reader_who_leaves_is_no_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = _spawn("explain", folder=tmp_path, stdout=writing)
    os.close(writing)
    _, complaints = process.communicate(timeout=30)
    assert complaints == ""
    assert process.returncode == 0


def test_an_interrupt_is_quiet_and_130(tmp_path: Path, unanswering: socket.socket) -> None:
    port = unanswering.getsockname()[1]
    process = _spawn("triage", f"http://127.0.0.1:{port}", folder=tmp_path, stdout=subprocess.PIPE)
    caller, _ = unanswering.accept()
    process.send_signal(signal.SIGINT)
    out, complaints = process.communicate(timeout=30)
    caller.close()
    assert (out, complaints, process.returncode) == ("", "diag: interrupted\n", 130)
