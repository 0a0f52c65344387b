"""What is read from answers, without a connection."""

from __future__ import annotations

import json

import pytest

from diag_exporter.sessions.proxying.replies import BodyWatch, StreamWatch, usage_counts
from tests.exporters.proxy.loopback import event_of, token


def _seen(*pieces: bytes) -> StreamWatch:
    watch = StreamWatch(strip=False)
    for moment, piece in enumerate(pieces):
        assert watch.feed(piece, float(moment)) == piece
    return watch


@pytest.mark.parametrize(
    "said",
    [
        {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
        {"choices": [{"delta": {"role": "assistant"}}]},
        {"choices": []},
        {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 9}}},
        {"type": "response.created", "response": {"instructions": "be brief"}},
        {"type": "ping"},
    ],
)
def test_what_carries_no_content_is_no_first_token(said: object) -> None:
    assert _seen(event_of(said), b": comment\n\n").first_token is None
    assert _seen(event_of(said), token("a")).first_token == 1.0


@pytest.mark.parametrize(
    "said",
    [
        {"choices": [{"delta": {"reasoning_content": "hm"}}]},
        {"choices": [{"delta": {"content": None, "tool_calls": [{"index": 0}]}}]},
        {"choices": [{"text": "a", "index": 0}]},
        {"choices": [{"delta": {}, "finish_reason": "length"}]},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}},
        {"type": "response.output_text.delta", "delta": "a"},
        {"text": "a", "meta_info": {}},
    ],
)
def test_every_kind_of_content_is_a_first_token(said: object) -> None:
    assert _seen(b": ping\n\n", event_of(said)).first_token == 1.0


def test_line_ends_of_either_kind_bound_events() -> None:
    watch = _seen(b'data: {"choices":[{"delta":{"content":"a"}}]}\r\n\r', b"\ndata: [DONE]\r\n\r\n")
    assert (watch.first_token, watch.pieces, watch.done()) == (1.0, 2, True)


def test_counts_that_only_the_first_event_has_stay() -> None:
    usage = {"input_tokens": 40, "cache_read_input_tokens": 30}
    start = {"type": "message_start", "message": {"usage": usage}}
    text = {"type": "content_block_delta", "delta": {"text": "a"}}
    end = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 8}}
    watch = _seen(event_of(start), *[event_of(text)] * 8, event_of(end), event_of({"type": "message_stop"}))
    assert watch.usage() == {"prompt_tokens": 40, "cached_tokens": 30, "output_tokens": 8}
    assert watch.done()


def test_usage_within_the_answer_s_words_is_no_usage() -> None:
    watch = _seen(token('"usage": {"prompt_tokens": 5}'), token("data: [DONE]"), token('"error"'))
    assert watch.usage() == {}
    assert not watch.done()
    assert not watch.failed()


def test_the_usage_of_a_long_answer_is_found_at_its_end() -> None:
    watch = BodyWatch()
    watch.feed(b'{"choices": [{"message": {"content": "' + b"x" * 2_000_000, 0.0)
    watch.feed(b'"}}], "usage": {"prompt_tokens": 4, "completion_tokens": 2}, "prompt_logprobs": null}', 0.0)
    assert watch.usage() == {"prompt_tokens": 4, "output_tokens": 2}


@pytest.mark.parametrize("usage", [None, [], "x", *({"prompt_tokens": n} for n in (-1, "7", True, 1e9))])
def test_a_count_that_is_none_is_absent(usage: object) -> None:
    assert usage_counts(usage) == {}


def test_nesting_without_end_harms_nobody() -> None:
    watch = BodyWatch()
    watch.feed(b'"usage": ' + b'{"a":' * 50_000, 0.0)
    assert watch.usage() == {}
    deep = b"data: " + b"[" * 100_000 + b"\n\n"
    assert _seen(deep).first_token is None


def test_what_was_not_told_is_not_zero() -> None:
    said = json.loads('{"prompt_tokens": 3, "completion_tokens": 0, "prompt_tokens_details": null}')
    assert usage_counts(said) == {"prompt_tokens": 3, "output_tokens": 0}
