"""A storm of alerts over a recorded incident in a real Prometheus, judged for real."""

from __future__ import annotations

import gc
import json
import random
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from diag import api
from diag.model import Verdict, Window
from diag.serve.store import Store
from diag.sources.protocol import Question
from tests.rules.servers import free_port
from tests.watch.replayed import Replayed, replayed
from tests.watch.terminal import environment

pytestmark = pytest.mark.server
_ALERTS, _GROUP = 500, 20
_SPREAD_SECONDS = 240.0
_EVIL = (
    "<script>alert(1)</script>", "\x1b]0;gone\x07", "\u202eevil", '"} 1\n# HELP x', "../../etc/passwd", "",
    "{{ 7 * 7 }}", "'; DROP TABLE alert; --", "\u0000", "A" * 9_000,
)  # fmt: skip
_LIKE = '{"version": "4", "alerts": [{"status": "firing", "startsAt": "%s", "fingerprint": "%s"}]}'
_MALFORMED = (
    b"", b"{", b"[]", b'{"alerts": 5}', b'{"version": "3", "alerts": []}', b"\xff\xfe", b"[" * 100_000,
    (_LIKE % ("soon", "f")).encode(), (_LIKE % ("2026-11-29T20:58:30Z", "")).encode(),
)  # fmt: skip
_OVERSIZED = b'{"version": "4", "alerts": [], "x": "' + b"x" * (2 * 1024 * 1024) + b'"}'


@dataclass
class Gate:
    """A real judge that waits until it is let through."""

    url: str
    entered: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def __call__(self, window: Window) -> Verdict:
        self.entered.set()
        assert self.opened.wait(60)
        return api.triage([self.url], question=Question(now=time.time(), window=window))


@dataclass(frozen=True)
class Storm:
    """``bodies`` in the order they are posted; ``minutes``: distinct ones in which an alert starts;
    ``ended``: fingerprints of what was resolved."""

    bodies: list[bytes]
    minutes: set[int]
    fingerprints: set[str]
    ended: set[str]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, incidents: Path) -> Iterator[Replayed]:
    """A Prometheus whose incident began two minutes ago, and is recorded to its end."""
    folder = tmp_path_factory.mktemp("held")
    with replayed(incidents / "load_burst", folder, since_onset_seconds=132.0) as store:
        yield store


def _alert(fingerprint: str, starts: float, ended: bool, **labels: str) -> dict[str, Any]:
    return {
        "status": "resolved" if ended else "firing",
        "fingerprint": fingerprint,
        "startsAt": _written(starts),
        "endsAt": _written(starts + 30) if ended else "0001-01-01T00:00:00Z",
        "labels": {"alertname": "LLMTTFTBudgetBurnFast"} | labels,
        "annotations": {"summary": "slow"},
    }


def _written(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()


def _storm(name: str, begins: float, seed: int = 7) -> Storm:
    """Every group is sent twice, a fifth of the alerts also ends, sometimes before it is sent at all."""
    dice = random.Random(seed)
    starts = {f"{name}-{n}": begins + _SPREAD_SECONDS * n / _ALERTS for n in range(_ALERTS)}
    ended = set(dice.sample(sorted(starts), _ALERTS // 5))
    groups: list[list[dict[str, Any]]] = []
    for finished in (False, True):
        chosen = [one for one in starts if one in ended or not finished]
        dice.shuffle(chosen)
        alerts = [_alert(one, starts[one], finished, **_labels(one)) for one in chosen]
        groups += [alerts[i : i + _GROUP] for i in range(0, len(alerts), _GROUP)]
    bodies = [json.dumps({"version": "4", "groupKey": "{}", "alerts": one}).encode() for one in groups * 2]
    dice.shuffle(bodies)
    return Storm(bodies, {int(at // 60) for at in starts.values()}, set(starts), ended)


def _labels(fingerprint: str) -> dict[str, str]:
    """Of an instance; two of three bear something hostile where a page shows it."""
    number = int(fingerprint.rpartition("-")[2])
    evil = {"instance": _EVIL[number % len(_EVIL)]} if number % 3 == 1 else {}
    worse = {"alertname": _EVIL[number % len(_EVIL)]} if number % 3 == 2 else {}
    return {"instance": f"{fingerprint}:8000", **evil, **worse}


def _let_loose(post: Callable[[bytes], requests.Response], storm: Storm) -> None:
    """Post everything with nonsense in between; what is valid is taken, and nothing else."""
    with ThreadPoolExecutor(8) as pool:
        valid = pool.map(post, storm.bodies)
        wrong = pool.map(post, _MALFORMED)
        large = pool.map(post, [_OVERSIZED] * 3)
        assert {one.status_code for one in valid} == {200}
        assert [one.status_code for one in wrong] == [400] * len(_MALFORMED)
        assert {one.status_code for one in large} == {413}


def test_a_storm_is_judged_once_a_minute_of_it(start: Any, held: Replayed, tmp_path: Path) -> None:
    gate = Gate(held.url)
    service = start(judge=gate, store=Store(tmp_path / "verdicts.sqlite"))
    storm = _storm("first", held.onset - 110.0)
    _let_loose(service.post, storm)
    # All is answered while the first triage is still under way.
    assert gate.entered.wait(10)
    assert len(service.asked) == 1
    told = service.get("/api/verdicts?limit=1000").json()
    assert {one["fingerprint"] for one in told} == storm.fingerprints
    assert {one["state"] for one in told} <= {"queued", "running"}
    gate.opened.set()
    service.until_idle()
    assert len(service.asked) == len(storm.minutes)
    _is_told(service.get, storm, held.leading)
    assert "The newest 200 of 500 alerts." in service.get("/").text
    oldest = service.get("/triage?instance=first-0:8000")
    assert (oldest.status_code, oldest.headers["location"][:11]) == (302, "/incidents/")
    assert f"llmdiag_alerts_firing {_ALERTS - len(storm.ended)}\n" in service.get("/metrics").text
    _grows_no_more(service, held)


def _is_told(get: Callable[[str], requests.Response], storm: Storm, leading: str) -> None:
    """Every alert with its verdict, every end kept, no label more than text."""
    told = {one["fingerprint"]: one for one in get("/api/verdicts?limit=1000").json()}
    assert storm.fingerprints <= told.keys()
    ours = [told[one] for one in storm.fingerprints]
    assert {(one["state"], one["leading"]) for one in ours} == {("done", leading)}
    assert {one["fingerprint"] for one in ours if one["ends_at"] is not None} == storm.ended
    page, metrics = get("/").text, get("/metrics").text
    assert "&lt;script&gt;alert(1)" in page
    for text in (page, metrics):
        assert not any(evil in text for evil in ("\x1b", "\x07", "\x00", '"} 1\n'))
    assert "<script" not in page
    assert "\u202e" not in page
    assert all(line.startswith(("#", "llmdiag_")) for line in metrics.splitlines())


def _grows_no_more(service: Any, held: Replayed) -> None:
    """A second storm as large leaves nearly nothing behind in memory."""
    again = _storm("again", held.onset - 410.0)
    before = len(service.asked)
    gc.collect()
    tracemalloc.start()
    try:
        _let_loose(service.post, again)
        service.until_idle(60)
        assert len(service.asked) - before == len(again.minutes)
        gc.collect()
        left_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"left by the second storm: {left_bytes / 1e6:.2f} MB")
    assert left_bytes < 0.6e6
    _is_told(service.get, again, held.leading)


@contextmanager
def _served(store_url: str, port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable, "-m", "diag", "serve", store_url, "--listen", f"127.0.0.1:{port}",
        "--store", str(folder / "verdicts.sqlite"), "--look-back", "10m", "--again", "1h",
    ]  # fmt: skip
    with (folder / "serve.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(), cwd=folder)
    try:
        _until(lambda: _answers(port), process)
        yield process
    finally:
        process.kill()
        process.wait(10)


def test_a_kill_in_mid_triage_loses_nothing(held: Replayed, tmp_path: Path) -> None:
    """By SIGKILL, with some questions answered, one under way and the others waiting."""
    port = free_port()
    begins = held.onset - 400.0
    alerts = [_alert(f"k{n}", begins + 60.0 * n, False) for n in range(8)]
    with _served(held.url, port, tmp_path) as process:
        body: dict[str, Any] = {"version": "4", "alerts": alerts}
        assert requests.post(f"http://127.0.0.1:{port}/webhook", json=body, timeout=10).status_code == 200
        _until(lambda: "done" in _states(port), process)
        states = _states(port)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    assert "running" in states
    assert "queued" in states
    with _served(held.url, port, tmp_path) as process:
        _until(lambda: set(_states(port)) == {"done"}, process)
        told = requests.get(f"http://127.0.0.1:{port}/api/verdicts", timeout=10).json()
    assert {one["fingerprint"]: one["leading"] for one in told} == {
        one["fingerprint"]: held.leading for one in alerts
    }


def _answers(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}/-/ready", timeout=2).ok
    except requests.RequestException:
        return False


def _states(port: int) -> list[str]:
    return [one["state"] for one in requests.get(f"http://127.0.0.1:{port}/api/verdicts", timeout=10).json()]


def _until(true: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, "the service ended"
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.05)
