"""Runs the command line in this process, as the console script does."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from diag.cli import main


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run left: exit code, answer, complaints."""

    code: int
    out: str
    err: str


@pytest.fixture
def diag(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ran]:
    """``diag("triage", "x")`` runs in an empty folder with no defaults from outside."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(arguments)
        said = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Ran(left.value.code, said.out, said.err)

    return run


@pytest.fixture
def unanswering() -> Iterator[socket.socket]:
    """A listening socket that answers nothing by itself."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(30)
        yield server
