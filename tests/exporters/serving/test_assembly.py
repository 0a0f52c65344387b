"""Putting parts together: profiles, collectors on and off, parts without anything to read, reloads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from diag_exporter import assembly
from diag_exporter.assembly import Running, build, chosen, wanted
from diag_exporter.families import Family, Row
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


@pytest.mark.parametrize(("listen", "guarded"), [("127.0.0.1:0", True), ("[::1]:0", True), (":0", False)])
def test_an_open_page_is_known_as_such(
    scripted: Any, running: Callable[..., Running], listen: str, guarded: bool
) -> None:
    assert running(replace(FREE, listen=listen), a=lambda _: [scripted()]).guarded is guarded
