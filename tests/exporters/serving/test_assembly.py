"""Putting parts together: profiles, collectors on and off, parts without anything to read, reloads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer.main

from diag_exporter import assembly
from diag_exporter.assembly import Running, build, chosen, wanted
from diag_exporter.cli import app
from diag_exporter.families import Family, Row
from diag_exporter.sessions.proxy import ProxyError, ProxyOptions
from diag_exporter.settings import Settings, SettingsError

PLAIN = Family("llmdiag_plain", "gauge", "Plain.")
DETAIL = Family("llmdiag_detail", "gauge", "Detail.", default=False)
ROWS = {"llmdiag_plain": [Row((), 1.0)], "llmdiag_detail": [Row((), 2.0)]}


@pytest.fixture
def both(scripted: Any) -> Any:
    """A collector with a family of the default profile and one of the full one."""
    return scripted(name="both", families=(PLAIN, DETAIL), rows=ROWS)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    """``running(a=make, …)`` runs parts of that name with the collectors that ``make(settings)`` gives."""
    made: list[Running] = []

    def start(settings: Settings, **parts: Any) -> Running:
        for name, make in parts.items():
            monkeypatch.setitem(assembly.PARTS, name, make)
            monkeypatch.setitem(assembly._READ_BY, name, ("top",))
        one = Running(tuple(parts), settings)
        made.append(one)
        return one

    yield start
    for one in made:
        one.server.server_close()
        for sampler in one.server.exporter.samplers.values():
            sampler.stop(0.1)


FREE = Settings(listen="127.0.0.1:0", fast=0.05, slow=0.05)


def _names(settings: Settings, collector: Any) -> set[str]:
    return {family.name for one in chosen([collector], settings) for family in one.families}


def test_profiles_and_switches_choose(both: Any) -> None:
    assert _names(Settings(), both) == {"llmdiag_plain"}
    assert _names(Settings(profile="full"), both) == {"llmdiag_plain", "llmdiag_detail"}
    assert _names(Settings(on=("both",)), both) == {"llmdiag_plain", "llmdiag_detail"}
    assert _names(Settings(off=("both",)), both) == set()
    (trimmed,) = chosen([both], Settings())
    assert dict(trimmed.collect(1.8e9)) == {"llmdiag_plain": ROWS["llmdiag_plain"]}
    trimmed.close()  # type: ignore[attr-defined]
    assert both.closed == 1


def test_minimal_leaves_the_essential_topics_and_on_brings_one_back() -> None:
    minimal = build(["gpu"], Settings(profile="minimal"))["gpu"]
    names = {family.name for family in minimal.families}
    assert "llmdiag_gpu_sm_clock_hertz" in names
    assert "llmdiag_gpu_foreign_memory_bytes" not in names
    more = build(["gpu"], Settings(profile="minimal", on=("processes",)))["gpu"]
    assert {family.name for family in more.families} > names | {"llmdiag_gpu_foreign_memory_bytes"}


def test_a_part_without_anything_to_read_stays_out() -> None:
    every = ("gpu", "engine", "sessions")
    assert wanted(every, Settings()) == ("gpu",)
    assert wanted(every, Settings(engine=("http://e:1",))) == ("gpu", "engine")
    assert wanted(every, Settings(otlp_listen=":4318")) == ("gpu", "sessions")
    with pytest.raises(SettingsError, match="give --engine URL"):
        wanted(("engine",), Settings())


def test_a_reload_builds_anew_only_what_changed(scripted: Any, running: Callable[..., Running]) -> None:
    made: list[str] = []

    def part(name: str) -> Callable[[Settings], list[Any]]:
        def make(settings: Settings) -> list[Any]:
            made.append(f"{name}{settings.top}")
            return [scripted(name=name)]

        return make

    one = running(FREE, a=part("a"))
    before = one.server.exporter.samplers["a"]
    one.reload(replace(FREE, gpus=8))
    assert made == ["a10"]
    assert one.server.exporter.samplers["a"] is before
    one.reload(replace(FREE, top=5))
    assert made == ["a10", "a5"]
    assert one.server.exporter.samplers["a"] is not before


def test_new_settings_that_cannot_be_leave_the_old_ones_running(
    scripted: Any, running: Callable[..., Running]
) -> None:
    def make(settings: Settings) -> list[Any]:
        if settings.top == 5:
            raise SettingsError("no such thing")
        return [scripted()]

    one = running(FREE, a=make)
    for wrong in (replace(FREE, top=5), replace(FREE, listen="127.0.0.1:1"), replace(FREE, off=("x",))):
        with pytest.raises(SettingsError):
            one.reload(wrong)
    sampler = one.server.exporter.samplers["a"]
    end = time.monotonic() + 5
    while not sampler.snapshot().rows:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_settings_are_not_taken_while_a_call_hangs(scripted: Any, running: Callable[..., Running]) -> None:
    gate = threading.Event()
    one = running(replace(FREE, stale_after=1.0), a=lambda _: [scripted(gate=gate)])
    end = time.monotonic() + 5
    while not one.server.exporter.wedged():
        assert time.monotonic() < end
        time.sleep(0.01)
    before = dict(one.server.exporter.samplers)
    with pytest.raises(SettingsError, match="a call of a hangs"):
        one.reload(replace(FREE, top=5))
    assert one.server.exporter.samplers == before
    gate.set()


def test_every_flag_has_a_setting_and_every_setting_a_flag() -> None:
    """What can be set and no flag tells is found by nobody; what no part reads again is not reloaded."""
    known = {one.name for one in fields(Settings)} - {"extra"}
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    flags = {
        name: {parameter.name for parameter in commands[name].params if parameter.name != "help"}
        for name in ("gpu", "engine", "sessions", "all", "demo")
    }
    assert set().union(*flags.values()) - {"config"} == known
    assert flags["all"] == flags["gpu"] | flags["engine"] | flags["sessions"]
    read = {name for some in assembly._READ_BY.values() for name in some} | set(assembly._PACE)
    assert known - read == {"listen", "web_config"}


def test_what_is_set_reaches_the_sessions(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f'{{"ts": 1.8e9, "model": "m", "chat": "c{n % 2}"}}\n' for n in range(6)))
    settings = replace(FREE, log=(log,), log_field=("session=chat",), from_start=True, active=5.0)
    sampler = build(["sessions"], settings)["sessions"]
    sampler.start()
    try:
        end = time.monotonic() + 5
        while not any(row.value for row in sampler.snapshot().rows.get("llmdiag_sessions_held", ())):
            assert time.monotonic() < end
            time.sleep(0.02)
        assert sampler.snapshot().rows["llmdiag_sessions_held"][0].value == 2
    finally:
        sampler.stop()
    options = assembly._session_options(
        replace(FREE, max_sessions=1234, active=5.0, session_in_request_id=True, top=3)
    )
    assert (options.sessions, options.active_seconds, options.session_in_request_id) == (1234, 5.0, True)
    assert options.tenants == 3


def test_what_is_set_reaches_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def start(options: Any, *_: object) -> Any:
        given.append(options)
        raise ProxyError("enough")

    monkeypatch.setattr("diag_exporter.sessions.proxy.start_proxy", start)
    settings = replace(
        FREE, proxy_listen=":0", upstream="http://u:1", proxy_workers=3, tenant_header="x-team",
        include_usage=True,
    )  # fmt: skip
    with pytest.raises(SettingsError, match="enough"):
        build(["sessions"], settings)
    assert given == [ProxyOptions("http://u:1", ":0", workers=3, tenant_header="x-team", include_usage=True)]


def test_the_token_reaches_the_engine(tmp_path: Path) -> None:
    seen: list[str | None] = []

    class Engine(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return None

    token = tmp_path / "token"
    token.write_text("sk-1\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        sampler = build(["engine"], replace(FREE, engine=(url,), engine_token=token))["engine"]
        sampler.start()
        end = time.monotonic() + 5
        while "Bearer sk-1" not in seen:
            assert time.monotonic() < end
            time.sleep(0.02)
        sampler.stop()
        server.shutdown()


@pytest.mark.parametrize(("listen", "guarded"), [("127.0.0.1:0", True), ("[::1]:0", True), (":0", False)])
def test_an_open_page_is_known_as_such(
    scripted: Any, running: Callable[..., Running], listen: str, guarded: bool
) -> None:
    assert running(replace(FREE, listen=listen), a=lambda _: [scripted()]).guarded is guarded
