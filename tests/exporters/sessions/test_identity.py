"""Whose session it is, and that nobody can tell from the hash."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from diag_exporter.sessions.events import SESSION_SOURCES
from diag_exporter.sessions.identity import Identifier, IdentityError, Key, load_key

CHAT = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
}
LADDER: list[tuple[dict, dict, str]] = [
    ({"x-session-id": "a"}, {}, "x-session-id"),
    ({"x-session-affinity": "b"}, {}, "x-session-affinity"),
    ({}, {"session_id": "s"}, "session_id"),
    ({}, {"metadata": {"session_id": "c"}}, "metadata.session_id"),
    ({}, {"prompt_cache_key": "d"}, "prompt_cache_key"),
    ({}, {"user": "e"}, "user"),
]


@pytest.mark.parametrize("start", range(len(LADDER)))
def test_the_first_source_wins(identifier: Identifier, start: int) -> None:
    headers: dict = {}
    body: dict = dict(CHAT)
    for more_headers, more_body, _ in reversed(LADDER[start:]):
        headers.update(more_headers)
        body.update(more_body)
    said = next(iter((*LADDER[start][0].values(), *LADDER[start][1].values())))
    said = said["session_id"] if isinstance(said, dict) else said
    assert identifier.identify(headers, body) == (identifier.hash(said), LADDER[start][2])
    assert LADDER[start][2] in SESSION_SOURCES


def test_safety_identifier_stands_for_a_user(identifier: Identifier) -> None:
    assert identifier.identify({}, {"safety_identifier": "p"})[1] == "user"


def test_a_fingerprint_holds_for_the_conversation_only(identifier: Identifier) -> None:
    first, source = identifier.identify({}, CHAT, tenant="t")
    later = {**CHAT, "messages": [*CHAT["messages"], {"role": "assistant", "content": "Hello"},
                                  {"role": "user", "content": "More"}]}  # fmt: skip
    assert source == "fingerprint"
    assert identifier.identify({}, later, tenant="t")[0] == first
    for other in (
        identifier.identify({}, CHAT, tenant="u"),
        identifier.identify({}, {**CHAT, "model": "n"}, tenant="t"),
        identifier.identify(
            {}, {**CHAT, "messages": [{"role": "user", "content": "Be kind.Hi"}]}, tenant="t"
        ),
    ):
        assert other[1] == "fingerprint"
        assert other[0] != first


def test_plain_prompts_and_responses_have_fingerprints(identifier: Identifier) -> None:
    assert identifier.identify({}, {"prompt": "Once"})[1] == "fingerprint"
    assert identifier.identify({}, {"input": "Once", "instructions": "Go on"})[1] == "fingerprint"
    parts = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]}
    assert identifier.identify({}, parts)[1] == "fingerprint"


@pytest.mark.parametrize(
    "body",
    [{}, {"messages": []}, {"messages": [1, None]}, {"messages": ""}, {"prompt": [1, 2]}, {"user": ["x"]},
     {"metadata": 3}, {"user": True}, {"messages": [{"role": "system", "content": "only"}]}],
)  # fmt: skip
def test_nothing_said_is_none(identifier: Identifier, body: dict) -> None:
    assert identifier.identify({}, body) == (None, "none")


def test_keys_make_hashes_differ(identifier: Identifier) -> None:
    other = Identifier(Key(b"x" * 32, 0.0))
    assert other.hash("a") != identifier.hash("a")
    other.take(identifier.key)
    assert other.hash("a") == identifier.hash("a") < 1 << 64


def test_the_key_file_is_made_once_and_for_its_owner(tmp_path) -> None:
    path = tmp_path / "deep" / "key"
    key = load_key(path, now=100.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key(path, now=200.0) == key
    assert os.listdir(path.parent) == ["key"]
    assert key.secret.hex() not in repr(key)


def test_an_old_key_is_replaced(tmp_path) -> None:
    path = tmp_path / "key"
    key = load_key(path, now=100.0, rotate_seconds=50.0)
    assert load_key(path, now=149.0, rotate_seconds=50.0) == key
    renewed = load_key(path, now=151.0, rotate_seconds=50.0)
    assert renewed.secret != key.secret
    assert load_key(path, now=0.0, rotate_seconds=50.0) == renewed  # a clock set back renews nothing
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_bad_key_files_are_told_in_one_line(tmp_path) -> None:
    path = tmp_path / "key"
    load_key(path)
    path.chmod(0o644)
    for spoil, word in (
        (lambda: None, "chmod 600"),
        (lambda: path.chmod(0o640), "chmod 600"),
        (lambda: (path.chmod(0o600), path.write_text("hello")), "not a session key file"),
        (lambda: path.write_text("12.5 abcd\n"), "not a session key file"),
        (lambda: (path.unlink(), path.mkdir()), "not a plain file"),
    ):
        spoil()
        with pytest.raises(IdentityError, match=word) as caught:
            load_key(path)
        assert "\n" not in str(caught.value)


_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from diag_exporter.sessions.identity import IdentityError, load_key
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    load_key(Path(sys.argv[1]))
except IdentityError as error:
    print(error)
"""


def test_a_disk_that_takes_nothing(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(tmp_path / "key")],
        env={"PYTHONPATH": os.pathsep.join(sys.path)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith("cannot use the session key file")
    assert done.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
