"""Files that somebody else rotates, empties, tears and fills with anything."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diag_exporter.sessions.feeds.follow import Follower


def drained(follower: Follower) -> list[bytes]:
    lines: list[bytes] = []
    for _ in range(60):
        lines += follower.read()
    return lines


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_only_what_comes_from_now_on(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\nhalf of an old")
    follower = Follower(path)
    append(path, b" line\nnew\n")
    assert drained(follower) == [b"new"]
    assert drained(Follower(path, from_start=True)) == [b"old", b"half of an old line", b"new"]


def test_a_line_waits_for_its_end(tmp_path) -> None:
    path = tmp_path / "log"
    path.touch()
    follower = Follower(path)
    append(path, b'{"a"')
    assert drained(follower) == []
    append(path, b": 1}\nrest")
    assert drained(follower) == [b'{"a": 1}']
    append(path, b"\n")
    assert drained(follower) == [b"rest"]


def test_rotation_loses_nothing(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    follower = Follower(path)
    append(path, b"1\n")
    assert follower.read() == [b"1"]
    append(path, b"2\n")
    path.rename(tmp_path / "log.1")
    append(tmp_path / "log.1", b"3\n")  # the writer still has the old file open
    assert drained(follower) == [b"2", b"3"]  # and no new one is there yet
    append(tmp_path / "log.1", b"4\n")
    append(path, b"5\n")
    assert drained(follower) == [b"4", b"5"]
    assert follower.state.rotations == 1


def test_truncation_starts_anew(tmp_path) -> None:
    path = tmp_path / "log"
    path.touch()
    follower = Follower(path)
    append(path, b"a long first line\n")
    assert drained(follower) == [b"a long first line"]
    path.write_bytes(b"x\n")
    assert drained(follower) == [b"x"]
    assert follower.state.truncations == 1


def test_emptied_and_filled_past_the_old_end_between_two_looks(tmp_path) -> None:
    path = tmp_path / "log"
    path.touch()
    follower = Follower(path)
    append(path, b"first\n")
    assert drained(follower) == [b"first"]
    os.truncate(path, 0)
    append(path, b"another, and longer\n")
    assert drained(follower) == [b"another, and longer"]
    assert follower.state.truncations == 1


def test_a_file_that_appears_later_or_comes_back(tmp_path) -> None:
    path = tmp_path / "log"
    follower = Follower(path)
    assert drained(follower) == []
    assert "no such file" in follower.state.error
    append(path, b"here\n")
    assert drained(follower) == [b"here"]
    assert follower.state.error == ""


def test_ten_megabytes_in_one_line(tmp_path) -> None:
    path = tmp_path / "log"
    path.touch()
    whole, cut = Follower(path), Follower(path, line_bytes_max=1 << 18)
    append(path, b"before\n" + b"x" * (10 << 20) + b"\nafter\n")
    assert [len(line) for line in drained(whole)] == [6, 10 << 20, 5]
    assert drained(cut) == [b"before", b"after"]
    assert (cut.state.too_long, whole.state.too_long) == (1, 0)


def test_what_is_no_file(tmp_path) -> None:
    folder = Follower(tmp_path)
    assert folder.read() == []
    assert "folder" in folder.state.error
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    began = time.monotonic()
    assert Follower(pipe).read() == []
    assert time.monotonic() - began < 1


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=30), st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cut_of_the_stream_gives_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "log"
    path.touch()
    follower, seen = Follower(path), []
    stream = b"".join(line + b"\n" for line in lines)
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        append(path, stream[:size])
        stream = stream[size:]
        seen += follower.read()
    assert seen == [line for line in lines if line]
    follower.close()
