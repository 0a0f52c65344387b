"""Feeds, table, sampler and page together; what runs costs, and what it never says."""

from __future__ import annotations

import http.client
import json
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from diag_exporter.families import Histogram
from diag_exporter.page import render
from diag_exporter.sessions import SessionOptions, collectors, open_sessions
from diag_exporter.sessions.feeds.state import FeedError
from diag_exporter.sessions.identity import IdentityError
from diag_exporter.sessions.running import Stepper
from diag_exporter.snapshot import Sampler

SECRET = "Grandmother's recipe for plum cake"


def line(**fields: object) -> str:
    return json.dumps({"ts": time.time(), "model": "qwen", **fields}) + "\n"


def eventually(check, seconds: float = 10.0):
    """What ``check`` returns once it is true."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if held := check():
            return held
        time.sleep(0.02)
    raise AssertionError("it never came")


def post(port: int, body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("POST", "/v1/traces", body, {"Content-Type": "application/json"})
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def span(request_id: str) -> bytes:
    held = {"gen_ai.request.id": {"stringValue": f"chatcmpl-{request_id}-0a1b2c3d"},
            "gen_ai.usage.prompt_tokens": {"intValue": "4000"},
            "gen_ai.latency.time_to_first_token": {"doubleValue": 1.5}}  # fmt: skip
    attributes = [{"key": key, "value": value} for key, value in held.items()]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": attributes}]}]}]}).encode()


def test_a_log_and_spans_become_one_page(tmp_path: Path) -> None:
    gateway = tmp_path / "gateway.log"
    gateway.touch()
    sessions = open_sessions(SessionOptions((gateway,), otlp_listen=("127.0.0.1", 0)))
    sampler = Sampler(
        collectors(SessionOptions(), sessions), clock=time.time, slow_seconds=0.1, fast_seconds=0.1
    )
    sampler.start()
    try:
        server = eventually(lambda: sessions.otlp)
        assert post(server.port, span("r-1")) == 200
        with gateway.open("a") as file:
            file.write(line(request_id="r-1", session="s", tenant="red", duration_seconds=3, text=SECRET))
            file.write(line(request_id="r-2", session="s", tenant="red", prompt=SECRET) * 2)
        eventually(lambda: sessions.joiner is not None and sessions.joiner.joined)
        snapshot = eventually(
            lambda: held if "llmdiag_ttft_seconds" in (held := sampler.snapshot()).rows else None
        )
        (ttft,) = snapshot.rows["llmdiag_ttft_seconds"]
        assert ttft.labels == ("qwen", "2k-8k")
        assert isinstance(ttft.value, Histogram)
        assert ttft.value.total == 1.5
        text = render(snapshot.families, snapshot.rows)
        assert 'llmdiag_tenant_tokens_total{tenant="red",kind="prompt"} 4000.0' in text
        assert 'llmdiag_feed_up{feed="gateway.log",kind="json_log"} 1.0' in text
        for secret in (SECRET, "r-1", '"s"', f"{sessions.identifier.hash('s')}", sessions.key.secret.hex()):
            assert secret not in text
    finally:
        assert sampler.stop()
    with pytest.raises(ConnectionRefusedError):
        post(server.port, b"{}")


def test_families_and_rows_agree(tmp_path: Path) -> None:
    log, engine_log = tmp_path / "a.log", tmp_path / "b.log"
    for path in (log, engine_log):
        path.write_text("")
    made: list[Any] = list(
        collectors(SessionOptions((log, log), engine_logs=(engine_log,), max_length=lambda _: 8192))
    )
    try:
        for number in range(40):
            status = ("ok", "error", "aborted")[number % 3]
            with log.open("a") as file:
                file.write(
                    line(
                        session=f"s{number % 4}", tenant="t", prompt_tokens=100 + number, cached_tokens=1,
                        ttft_seconds=1, queue_seconds=1, status=status, tokens_after_abort=3,
                    )
                )  # fmt: skip
        names = set()
        for collector in made:
            known = {family.name: family for family in collector.families}
            rows = eventually(lambda held=collector: held.collect(time.time()))
            assert set(rows) <= set(known)
            for name, some in rows.items():
                family = known[name]
                assert family.name.startswith("llmdiag_")
                assert family.name.endswith("_total") == (family.kind == "counter")
                assert family.name.endswith("_info") == (family.kind == "info")
                assert "session" not in family.labels
                for row in some:
                    assert len(row.labels) == len(family.labels)
                    assert isinstance(row.value, Histogram) == (family.kind == "histogram")
            names |= set(known)
        assert len(names) == sum(len(collector.families) for collector in made)
        feeds = {row.labels[0] for row in made[1].collect(0.0)["llmdiag_feed_up"]}
        assert feeds == {"a.log", "a.log#2", "b.log"}
    finally:
        for collector in made:
            collector.close()


def test_an_address_that_is_taken_is_said_once_and_asked_for_again(caplog) -> None:
    first = open_sessions(SessionOptions(otlp_listen=("127.0.0.1", 0)))
    first.start()
    assert first.otlp is not None
    second = open_sessions(SessionOptions(otlp_listen=("127.0.0.1", first.otlp.port)))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            second.start()
    assert [record.getMessage().count("address already in use") for record in caplog.records] == [1]
    rows = second.collectors()[1].collect(0.0)
    assert [row.value for row in rows["llmdiag_feed_up"]] == [0.0]
    first.close()
    second.start()
    assert second.otlp is not None
    second.close()


def test_mistakes_are_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match="preset"):
        open_sessions(SessionOptions((tmp_path / "x",), preset="apache"))
    with pytest.raises(IdentityError, match="cannot use"):
        open_sessions(SessionOptions(key_file=Path("/proc/nothing/key")))


def test_a_file_that_is_missing_is_said_once_and_when_it_comes(tmp_path: Path, caplog) -> None:
    path = tmp_path / "late.log"
    sessions = open_sessions(SessionOptions((path,)))
    with caplog.at_level(logging.WARNING):
        sessions.start()
        eventually(lambda: caplog.records)
        path.touch()
        eventually(lambda: len(caplog.records) > 1)
    sessions.close()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["late.log: no such file or directory", "late.log: can be read again"]


def test_a_key_that_grew_old_is_renewed_while_running(tmp_path: Path, caplog) -> None:
    caplog.set_level("INFO", "diag_exporter")
    sessions = open_sessions(SessionOptions(key_file=tmp_path / "key"))
    taken: list[object] = []
    sessions.on_key.append(taken.append)
    before, hashed = sessions.key, sessions.identifier.hash("s")
    (tmp_path / "key").write_text(f"1.0 {before.secret.hex()}\n")
    sessions.renew_key()
    assert sessions.key == before  # looked at once an hour only
    sessions._key_checked -= 3601
    sessions.renew_key()
    assert sessions.key.secret != before.secret
    assert taken == [sessions.key]
    sessions._key_checked -= 3601
    sessions.renew_key()
    assert taken == [sessions.key]  # it is young: nobody needs to be told
    (said,) = (record.getMessage() for record in caplog.records)
    assert said == "the key of the session hash was renewed: every session now looks new once"
    assert sessions.key.secret.hex() not in said
    assert sessions.identifier.hash("s") != hashed
    (row,) = sessions.collectors()[1].collect(0.0)["llmdiag_session_key_created_timestamp_seconds"]
    assert row.value == pytest.approx(time.time(), abs=60)
    sessions.close()


def test_one_feed_that_breaks_ends_no_other(caplog) -> None:
    class Feed:
        def __init__(self, broken: bool) -> None:
            self.state = type("State", (), {"name": "x", "error": ""})()
            self.steps, self.broken = 0, broken

        def step(self) -> bool:
            self.steps += 1
            if self.broken:
                raise RuntimeError(SECRET)
            return False

        def close(self) -> None:
            pass

    feeds = [Feed(True), Feed(False)]
    stepper = Stepper(feeds, idle_seconds=0.01)
    with caplog.at_level(logging.WARNING):
        stepper.start()
        eventually(lambda: feeds[1].steps > 3)
    stepper.close()
    assert feeds[0].state.error == "unexpected RuntimeError"
    assert len(caplog.records) == 1
    assert SECRET not in caplog.text


_START = """
import re, sys
from diag_exporter.engine import EngineOptions, collectors as engine
from diag_exporter.sessions import SessionOptions, collectors as sessions
made = [*sessions(SessionOptions(otlp_listen=("127.0.0.1", 0))), *engine(EngineOptions(("h:1",)))]
heavy = {"pandas", "numpy", "scipy", "rich", "requests", "aiohttp", "google.protobuf"} & set(sys.modules)
# Not getrusage: its maximum is that of the process before exec.
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
print(int(peak) / 1024, *heavy)
"""


def test_starting_is_light() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _START], env={"PYTHONPATH": ":".join(sys.path)}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    megabytes, *heavy = done.stdout.split()
    assert heavy == []
    assert float(megabytes) <= 60
