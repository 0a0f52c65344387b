from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from diag.records import read_requests
from diag.records.presets import guess_preset
from diag.records.record import status_of

Write = Callable[..., Path]

LITELLM: dict[str, object] = {
    "id": "chatcmpl-1", "call_type": "acompletion", "status": "success",
    "prompt_tokens": 900, "completion_tokens": 40,
    "startTime": 1795990142.0, "endTime": 1795990144.5, "completionStartTime": 1795990142.4, 
    "model": "hosted/tiny",
    "model_group": "tiny", "api_base": "http://user:secret@vllm-0:8000/v1", "end_user": "u7",
    "metadata": {
        "user_api_key_team_id": "team-a", "requester_metadata": {"session_id": "s1"},
        "usage_object": {"prompt_tokens_details": {"cached_tokens": 512}},
    },
}  # fmt: skip

NGINX: dict[str, object] = {
    "msec": "1795990145.000", "request_time": "2.500", "status": "200", "request_method": "POST",
    "request_uri": "/v1/chat/completions", "upstream_connect_time": "0.001", "upstream_header_time": "0.030",
    "upstream_response_time": "2.400", "request_id": "f00d", "http_x_session_id": "s1",
    "upstream_addr": "10.0.0.1:8000",
}  # fmt: skip


def test_litellm_standard_payload(write_lines: Write) -> None:
    read = read_requests([write_lines("l.jsonl", [LITELLM, {"standard_logging_object": LITELLM}])])
    assert read.read == 2
    for _, row in read.frame.iterrows():
        assert (row["session"], row["tenant"], row["model"]) == ("s1", "team-a", "tiny")
        assert (row["instance"], row["request_id"], row["status"]) == ("vllm-0:8000", "chatcmpl-1", "ok")
        assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (900, 512, 40)
        assert row["ttft_seconds"] == pytest.approx(0.4)
        assert row["duration_seconds"] == pytest.approx(2.5)
        assert row["source"] == "litellm"


def test_litellm_spend_log_and_its_traps(write_lines: Write) -> None:
    spend = {
        "request_id": "x", "call_type": "acompletion", "startTime": "2026-11-29T22:09:02Z", 
        "endTime": "2026-11-29 22:09:04+00:00",
        "completionStartTime": "2026-11-29T22:09:04Z", "model": "tiny", "team_id": "t", "session_id": "s",
        "status": "failure",
        "prompt_tokens": 0, "completion_tokens": 0, "api_base": "",
    }  # fmt: skip
    cached = {**LITELLM, "cache_hit": True}
    read = read_requests([write_lines("l.jsonl", [spend, cached])])
    row = read.frame.iloc[0]
    assert (read.read, read.skipped) == (1, 1)
    assert (row["ts"], row["tenant"], row["session"], row["status"]) == (1795990142.0, "t", "s", "error")
    assert row["duration_seconds"] == 2.0
    assert math.isnan(row["ttft_seconds"]), "an answer that was not streamed shows no first token"
    assert math.isnan(row["prompt_tokens"]), "a failed call's zero is unknown"
    assert row["instance"] is None


def test_nginx_arrival_is_the_end_less_the_duration(write_lines: Write) -> None:
    row = read_requests([write_lines("n.log", [NGINX])]).frame.iloc[0]
    assert row["ts"] == pytest.approx(1795990142.5)
    assert row["duration_seconds"] == 2.5
    assert (row["session"], row["instance"], row["request_id"], row["status"]) == (
        "s1",
        "10.0.0.1:8000",
        "f00d",
        "ok",
    )
    assert math.isnan(row["ttft_seconds"]), "headers are no first token"
    assert row["upstream_header_seconds"] == 0.03


def test_nginx_lists_of_upstreams(write_lines: Write) -> None:
    retried = {
        **NGINX, "upstream_connect_time": "0.100, 0.002", "upstream_header_time": "-, 0.030",
        "upstream_response_time": "0.100 : 2.400",
        "upstream_addr": "10.0.0.1:80, 10.0.0.2:80 : unix:/run/a.sock",
    }  # fmt: skip
    nothing = {**NGINX, "upstream_connect_time": "-", "upstream_addr": "-", "msec": "1795990146"}
    frame = read_requests([write_lines("n.log", [retried, nothing])]).frame
    assert frame["upstream_connect_seconds"][0] == pytest.approx(0.102)
    assert frame["upstream_header_seconds"][0] == pytest.approx(0.03)
    assert frame["upstream_response_seconds"][0] == pytest.approx(2.5)
    assert frame["instance"].tolist() == ["unix:/run/a.sock", None]
    assert math.isnan(frame["upstream_connect_seconds"][1])


def test_nginx_sees_who_left_and_skips_what_is_no_inference(write_lines: Write) -> None:
    lines = [
        {**NGINX, "status": "499"},
        {**NGINX, "request_completion": ""},
        {**NGINX, "request_completion": "OK"},
        {**NGINX, "status": "502"},
        {**NGINX, "request_method": "GET", "request_uri": "/metrics"},
        {
            **{key: value for key, value in NGINX.items() if key != "request_method"},
            "request": "GET /health HTTP/1.1",
        },
    ]
    read = read_requests([write_lines("n.log", lines)])
    assert read.frame["status"].tolist() == ["aborted", "aborted", "ok", "error"]
    assert read.skipped == 2


@pytest.mark.parametrize(
    ("line", "preset"),
    [
        (LITELLM, "litellm"),
        (NGINX, "nginx"),
        ({"ts": 1, "session": "a"}, "jsonl"),
        ({"resourceSpans": []}, "vllm_spans"),
        ({"resource": {}, "span": {"name": "llm_request"}}, "vllm_spans"),
        ({"ts": 1, "message": "not a request"}, None),
        ({"startTime": 1, "foo": 2}, None),
    ],
)
def test_presets_are_told_apart(line: dict[str, object], preset: str | None) -> None:
    assert guess_preset(line) == preset


@pytest.mark.parametrize(
    ("value", "status"),
    [("ok", "ok"), ("200", "ok"), (204, "ok"), ("FAILURE", "error"), (429, "error"), (499, "aborted"),
     ("cancelled", "aborted"), ("000", None), (True, None), (None, None), ("", None),
     ("²", None), (99999, None)],
)  # fmt: skip
def test_status_words(value: object, status: str | None) -> None:
    assert status_of(value) == status
