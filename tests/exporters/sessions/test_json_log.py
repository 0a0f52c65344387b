"""Lines of logs into events: the plain shape, gateways' shapes, and rubbish."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diag_exporter.sessions.events import Event
from diag_exporter.sessions.feeds import typed
from diag_exporter.sessions.feeds.decode import LineDecoder
from diag_exporter.sessions.feeds.json_log import JsonLog, parse_fields
from diag_exporter.sessions.feeds.presets import PLAIN_FIELDS, PRESETS, Unusable
from diag_exporter.sessions.feeds.state import FeedError
from diag_exporter.sessions.identity import Identifier, Key

WHOLE = {
    "ts": 1764453600.5, "session": "s-1", "tenant": "team", "model": "qwen", "instance": "a:8000",
    "request_id": "r1", "prompt_tokens": 1200, "cached_tokens": 800, "output_tokens": 20,
    "ttft_seconds": 0.5, "queue_seconds": 0.1, "duration_seconds": 5, "status": "ok",
    "session_source": "x-session-id", "tokens_after_abort": 0, "repeated_tokens": 900,
}  # fmt: skip


def read(identifier: Identifier, line: object, preset: str = "plain", **options) -> Event | None:
    text = line if isinstance(line, bytes) else json.dumps(line).encode()
    return LineDecoder(identifier, PRESETS[preset], **options).event(text)


def without_msgspec(identifier: Identifier, monkeypatch: pytest.MonkeyPatch) -> LineDecoder:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert typed.typed_reader({}) is None
    return LineDecoder(identifier)


def test_every_field_arrives(identifier: Identifier) -> None:
    event = read(identifier, WHOLE)
    assert event == Event(
        1764453600.5, "qwen", "team", identifier.hash("s-1"), "x-session-id", 1200, 800, 20, 0.5, 0.1, 5.0,
        "ok", 0, "a:8000", 900, hash("r1"),
    )  # fmt: skip


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 1 << 70), st.floats(), st.text(max_size=8),
    st.sampled_from(["ok", "error", "499", "12", "2026-11-30T00:00:00Z", "1e400"]), st.lists(st.integers()),
)  # fmt: skip


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(PLAIN_FIELDS, _VALUES)), st.floats(1, 1e10))
@example({"prompt_tokens": (1 << 40) + 1}, 5.0)
@example({"ttft_seconds": 1e9 + 1, "model": "x" * 513}, 5.0)
@example({"session": "s", "session_source": None, "tenant": None}, 5.0)
@settings(max_examples=150, deadline=None)
def test_the_fast_way_and_the_slow_way_agree(row: dict, ts: float) -> None:
    """Whatever stands in a line, msgspec only decides how long it takes."""
    identifier = Identifier(Key(b"k" * 32, 0.0))
    line = json.dumps({"ts": ts, **row}).encode()
    fast, slow = LineDecoder(identifier), LineDecoder(identifier)
    slow._typed = None
    results: list[Event | str | None] = []
    for decoder in (fast, slow):
        try:
            results.append(decoder.event(line))
        except Unusable as error:
            results.append(str(error))
    assert results[0] == results[1]
    if isinstance(results[0], Event):
        numbers = [value for value in results[0][5:11] if value is not None]
        assert all(0 <= number < 1e13 for number in numbers)


def test_without_msgspec(identifier: Identifier, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = without_msgspec(identifier, monkeypatch)
    assert decoder.event(json.dumps(WHOLE).encode()) == read(identifier, WHOLE)


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"a":1}', b"[" * 100_000, b'{"ts": "yesterday"}',
     b'{"ts": NaN}', b'{"ts": -1}'],
)  # fmt: skip
def test_rubbish_is_unusable_and_never_quoted(identifier: Identifier, line: bytes) -> None:
    with pytest.raises(Unusable) as caught:
        read(identifier, line)
    assert str(caught.value) in ("not JSON", "not a JSON object", "no time")


def test_bytes_that_are_not_utf8_do_not_cost_the_line(identifier: Identifier) -> None:
    event = read(identifier, b'{"ts": 5, "tenant": "caf\xe9", "prompt_tokens": 7}')
    assert event is not None
    assert (event.tenant, event.prompt_tokens) == ("caf\ufffd", 7)


def test_fields_by_path(identifier: Identifier) -> None:
    fields = parse_fields("ts=time, prompt_tokens=usage.prompt_tokens,session=user,status=code")
    line = {
        "time": "2026-11-30T00:00:00Z",
        "usage": {"prompt_tokens": 9},
        "user": "u",
        "code": 499,
        "model": "m",
    }
    event = read(identifier, line, fields=fields)
    assert event is not None
    assert event[:6] == (1795996800.0, "m", "", identifier.hash("u"), "log", 9)
    assert event.status == "aborted"
    flat = read(identifier, {"time": 5, "model": "m"}, fields={"ts": "time"})
    assert flat is not None
    assert flat.ts == 5


@pytest.mark.parametrize("text", ["prompt=x", "ts", "ts=", "=x"])
def test_a_bad_field_map_is_told(text: str) -> None:
    with pytest.raises(FeedError, match="FIELD=PATH"):
        parse_fields(text)


LITELLM = {
    "id": "chatcmpl-1", "startTime": 1000.0, "completionStartTime": 1000.8, "endTime": 1004.0, "stream": True,
    "status": "success", "model_group": "qwen", "api_base": "http://user:pw@10.0.0.1:8000/v1",
    "prompt_tokens": 500, "completion_tokens": 40, "call_type": "acompletion", "end_user": "jo",
    "metadata": {
        "user_api_key_team_alias": "red", "user_api_key_hash": "abc",
        "requester_metadata": {"session_id": "s9"},
        "usage_object": {"prompt_tokens_details": {"cached_tokens": 300}},
    },
}  # fmt: skip


def test_litellm(identifier: Identifier) -> None:
    event = read(identifier, {"standard_logging_object": LITELLM}, "litellm")
    assert event is not None
    assert event.session == identifier.hash("s9")
    assert event.session_source == "metadata.session_id"
    assert (event.tenant, event.model, event.instance) == ("red", "qwen", "10.0.0.1:8000")
    assert (event.prompt_tokens, event.cached_tokens, event.output_tokens) == (500, 300, 40)
    assert event.ttft_seconds == pytest.approx(0.8)
    assert event.duration_seconds == pytest.approx(4.0)


def test_litellm_knows_little_of_a_failed_call(identifier: Identifier) -> None:
    failed = {**LITELLM, "status": "failure", "prompt_tokens": 0, "completion_tokens": 0, "stream": False,
              "error_information": {"error_code": "499"}, "metadata": {}}  # fmt: skip
    event = read(identifier, failed, "litellm")
    assert event is not None
    assert event.status == "aborted"
    assert (event.prompt_tokens, event.output_tokens, event.ttft_seconds) == (None, None, None)
    assert (event.session, event.session_source) == (identifier.hash("jo"), "user")
    assert read(identifier, {**LITELLM, "cache_hit": True}, "litellm") is None


NGINX = {
    "msec": "1700000010.000", "request_method": "POST", "request_uri": "/v1/chat/completions?x=1",
    "status": "200", "request_time": "4.000", "upstream_addr": "10.0.0.1:80, 10.0.0.2:80", "request_id": "r",
    "http_x_session_id": "-", "http_x_session_affinity": "aff", "http_x_tenant_id": "blue",
    "request_completion": "OK",
}  # fmt: skip


def test_nginx(identifier: Identifier) -> None:
    event = read(identifier, NGINX, "nginx")
    assert event is not None
    assert event.ts == pytest.approx(1700000006.0)
    assert (event.session, event.session_source) == (identifier.hash("aff"), "x-session-affinity")
    assert (event.tenant, event.instance, event.status) == ("blue", "10.0.0.2:80", "ok")
    assert event.ttft_seconds is None  # nginx sees headers, not tokens


@pytest.mark.parametrize(
    ("change", "status"),
    [({"status": 499}, "aborted"), ({"request_completion": ""}, "aborted"), ({"status": "502"}, "error")],
)
def test_nginx_tells_who_left(identifier: Identifier, change: dict, status: str) -> None:
    event = read(identifier, {**NGINX, **change}, "nginx")
    assert event is not None
    assert event.status == status


@pytest.mark.parametrize("change", [{"request_method": "GET"}, {"request_uri": "/metrics"}])
def test_nginx_lines_that_are_no_requests(identifier: Identifier, change: dict) -> None:
    assert read(identifier, {**NGINX, **change}, "nginx") is None


def test_a_feed_counts_what_it_could_not_use(tmp_path, identifier, basket) -> None:
    path = tmp_path / "gate way.log"
    path.touch()
    log = JsonLog(path, basket, identifier)
    with path.open("wb") as file:
        file.write(b"rubbish\n" + json.dumps(WHOLE).encode() + b'\n\xff\xff\n{"ts": 7}\n')
    assert log.step()
    assert not log.step()
    assert [event.ts for event in basket.events] == [1764453600.5, 7.0]
    state = log.state
    assert (state.events, state.unusable, state.last_event, state.name) == (2, 2, 7.0, "gate_way.log")
    path.unlink()
    log.close()


def test_a_wrong_preset_is_hinted_at_once(tmp_path, identifier, basket, caplog) -> None:
    path = tmp_path / "gw.log"
    path.touch()
    log = JsonLog(path, basket, identifier, preset="nginx")
    for _ in range(3):
        with path.open("w") as file:
            file.write('{"request_method": "POST", "secret": 1}\n' * 30)
        log.step()
    assert [record.getMessage() for record in caplog.records] == [
        "gw.log: no line can be used; does --preset fit?"
    ]
    log.close()


def test_unknown_presets_are_told(tmp_path, identifier, basket) -> None:
    with pytest.raises(FeedError, match="plain, litellm, nginx"):
        JsonLog(tmp_path / "x", basket, identifier, preset="apache")
    with pytest.raises(FeedError, match="field map"):
        JsonLog(tmp_path / "x", basket, identifier, preset="nginx", fields={"ts": "t"})
