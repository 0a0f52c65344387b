from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from diag.errors import RecordsError, UsageError
from diag.model import Window
from diag.records import COLUMNS, read_requests
from diag.records.lines import Lines
from diag.records.record import BAD_LINES_KEPT, NUMBERS, TEXTS

Write = Callable[..., Path]


def test_a_recording_reads_whole_and_in_order(incidents: Path) -> None:
    read = read_requests([incidents / "abandoned_requests" / "requests" / "requests.jsonl.gz"])
    assert (read.read, read.bad_total, read.notes) == (618, 0, ())
    assert tuple(read.frame.columns) == COLUMNS
    assert read.frame["ts"].is_monotonic_increasing
    assert read.frame["status"].value_counts().to_dict() == {"aborted": 494, "ok": 124}
    aborted = read.frame[read.frame["status"] == "aborted"]
    assert aborted["prompt_tokens"].isna().all()
    assert aborted["ttft_seconds"].notna().any()


def test_types_and_unknowns(write_lines: Write) -> None:
    path = write_lines(
        "r.jsonl", [{"ts": 20.5, "session": "b"}, {"ts": 10, "prompt_tokens": 7, "tenant": ""}]
    )
    frame = read_requests([path]).frame
    assert all(frame[name].dtype == np.float64 for name in NUMBERS)
    assert all(frame[name].dtype == object for name in TEXTS)
    assert frame["ts"].tolist() == [10.0, 20.5]
    assert frame["session"].tolist() == [None, "b"]
    assert frame["tenant"].tolist() == [None, None]
    assert frame["prompt_tokens"][0] == 7.0
    assert math.isnan(frame["prompt_tokens"][1])


def test_bad_lines_are_named_counted_and_survived(write_lines: Write) -> None:
    good = {"ts": 1.0, "session": "a"}
    path = write_lines(
        "r.jsonl", [good, "{broken", "[1]", "7", {"session": "no time"}, {"ts": "noon"}, "", good]
    )
    read = read_requests([path])
    assert (read.read, read.bad_total, read.skipped) == (2, 5, 0)
    assert [bad.line for bad in read.bad] == [2, 3, 4, 5, 6]
    assert "array" in read.bad[1].why
    assert any("5 bad lines" in note and ":2:" in note for note in read.notes)


def test_only_the_first_bad_lines_are_kept(write_lines: Write) -> None:
    path = write_lines("r.jsonl", [{"ts": 1.0, "session": "a"}, *(["nonsense"] * 500)])
    read = read_requests([path])
    assert read.bad_total == 500
    assert len(read.bad) == BAD_LINES_KEPT


def test_a_truncated_gzip_keeps_what_was_read(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"ts": float(at + 1), "session": f"s{at * 7919}"}) + "\n" for at in range(5000)
    )
    whole = gzip.compress(lines.encode())
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    read = read_requests([path])
    assert 1000 < read.read < 5000
    assert any("damaged" in note for note in read.notes)


def test_gzip_is_told_from_the_content(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(gzip.compress(b'{"ts": 5, "session": "a"}\n'))
    assert read_requests([path]).read == 1


def test_non_utf8_nan_and_nginx_escapes_pass(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"ts": 1, "session": "caf\xe9"}\n'
        b'{"ts": 2, "session": "x", "ttft_seconds": NaN}\n'
        b'{"ts": 3, "session": "a\\x22b"}\n'
    )
    read = read_requests([path])
    assert (read.read, read.bad_total) == (3, 0)
    assert read.frame["session"].tolist() == ["caf�", "x", 'a"b']
    assert math.isnan(read.frame["ttft_seconds"][1])


def test_a_ten_megabyte_line_survives(write_lines: Write) -> None:
    path = write_lines(
        "r.jsonl", [{"ts": 1, "session": "a", "extra": "x" * 10_000_000}, {"ts": 2, "session": "b"}]
    )
    assert read_requests([path]).frame["session"].tolist() == ["a", "b"]


def test_a_line_beyond_the_limit_is_passed_over_not_split(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"ab\n" + b"c" * 100 + b"\nde\n")
    assert list(Lines(path, line_bytes_max=10)) == [(1, b"ab\n"), (2, None), (3, b"de\n")]


def test_values_that_cannot_be_are_unknown_and_noted(write_lines: Write) -> None:
    path = write_lines(
        "r.jsonl",
        [
            {"ts": 1, "prompt_tokens": -5, "status": "ok"},
            {"ts": 2, "prompt_tokens": "many", "status": "weird"},
            {"ts": 3, "prompt_tokens": "12", "status": 503, "session": 9},
        ],
    )
    read = read_requests([path])
    assert read.read == 3
    assert read.frame["prompt_tokens"].isna().tolist() == [True, True, False]
    assert read.frame["status"].tolist() == ["ok", None, "error"]
    assert read.frame["session"][2] == "9"
    for part in ("negative", "no numbers", "'weird'"):
        assert any(part in note for note in read.notes), part


@pytest.mark.parametrize(
    "value", [1795990142, 1795990142000, 1795990142000000, "2026-11-29T22:09:02Z", "1795990142"]
)
def test_arrival_in_any_unit(write_lines: Write, value: object) -> None:
    path = write_lines("r.jsonl", [{"ts": value, "session": "a"}])
    assert read_requests([path]).frame["ts"][0] == 1795990142.0


def test_the_window_cuts_and_says_so(write_lines: Write) -> None:
    path = write_lines("r.jsonl", [{"ts": at, "session": "a"} for at in (1, 2, 3, 4)])
    read = read_requests([path], window=Window(2, 3))
    assert read.frame["ts"].tolist() == [2.0, 3.0]
    assert read.read == 4
    assert any("2 of 4" in note for note in read.notes)


def test_mapping_follows_dotted_paths_and_units(write_lines: Write) -> None:
    line = {
        "time": "2026-11-29T22:09:02+00:00",
        "user": "u1",
        "usage": {"prompt_tokens": 11},
        "lat_ms": 250,
        "a.b": "m",
    }
    path = write_lines("r.jsonl", [line])
    mapping = {
        "ts": "time", "session": "user", "prompt_tokens": "usage.prompt_tokens", "duration_seconds": "lat_ms",
        "model": "a.b", "tenant": "team",
    }  # fmt: skip
    read = read_requests([path], mapping=mapping)
    row = read.frame.iloc[0]
    assert (row["ts"], row["session"], row["prompt_tokens"], row["model"]) == (1795990142.0, "u1", 11.0, "m")
    assert row["duration_seconds"] == pytest.approx(0.25)
    assert row["tenant"] is None
    assert any("tenant=team" in note for note in read.notes)


def test_an_unknown_log_gets_a_mapping_that_works(write_lines: Write) -> None:
    line = {"timestamp": 1795990142, "conversation_id": "c", "usage": {"input_tokens": 5}, "latency_ms": 1500}
    path = write_lines("strange.jsonl", [line])
    with pytest.raises(RecordsError) as caught:
        read_requests([path])
    message = str(caught.value)
    assert "strange.jsonl" in message
    assert "usage.input_tokens" in message
    assert "\n" not in message
    suggested = message.rpartition("--requests-map ")[2]
    mapping = dict(pair.split("=") for pair in suggested.split(","))
    row = read_requests([path], mapping=mapping).frame.iloc[0]
    assert (row["session"], row["prompt_tokens"], row["duration_seconds"]) == ("c", 5.0, 1.5)


def test_wrong_questions_are_usage_errors(write_lines: Write) -> None:
    path = write_lines("r.jsonl", [{"ts": 1, "session": "a"}])
    with pytest.raises(UsageError, match="litellm"):
        read_requests([path], preset="apache")
    with pytest.raises(UsageError, match="promt_tokens"):
        read_requests([path], mapping={"promt_tokens": "x"})
    with pytest.raises(RecordsError, match="No such file"):
        read_requests([path.with_name("absent.jsonl")])


def test_an_empty_log_is_an_empty_frame(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.touch()
    read = read_requests([path])
    assert (read.read, len(read.frame), read.bad_total) == (0, 0, 0)
    assert tuple(read.frame.columns) == COLUMNS


def test_several_files_become_one_order(write_lines: Write) -> None:
    first = write_lines("a.jsonl", [{"ts": 3, "session": "x"}, {"ts": 1, "session": "x"}])
    second = write_lines("b.jsonl", [{"ts": 2, "session": "y"}])
    assert read_requests([first, second]).frame["session"].tolist() == ["x", "y", "x"]


_LINE = st.one_of(
    st.binary(max_size=40).filter(lambda raw: b"\n" not in raw and not raw.startswith(b"\x1f\x8b")),
    st.fixed_dictionaries(
        {"ts": st.one_of(st.floats(), st.integers(), st.text(max_size=5), st.none())},
        optional={
            name: st.one_of(
                st.floats(),
                st.integers(),
                st.text(max_size=5),
                st.none(),
                st.lists(st.integers(), max_size=2),
            )
            for name in ("session", "prompt_tokens", "status", "queue_seconds")
        },
    ).map(lambda item: json.dumps(item).encode()),
)


@given(lines=st.lists(_LINE, max_size=12))
@example(lines=[b"\x00", b"\x80{", b'{"ts": 1e400}', b'{"ts":' * 3000])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_nothing_but_a_records_error_and_every_line_is_counted(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "fuzz.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    try:
        read = read_requests([path])
    except RecordsError:
        # Objects, but none that tells its arrival: to refuse is allowed then, and only then.
        arrivals = [json.loads(line).get("ts") for line in lines if line.startswith(b'{"ts": ')]
        if any(arrival is not None for arrival in arrivals):
            raise
        return
    content = [line for number, line in Lines(path) if line is not None and line.strip()]
    assert read.read + read.bad_total + read.skipped == len(content)
    assert len(read.frame) == read.read
    assert read.frame["ts"].gt(0).all()
