"""A service on a free loopback port, its judge a stand-in or the real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import requests
import uvicorn

from diag import api
from diag.model import Verdict, Window
from diag.serve.app import application
from diag.serve.settings import Settings
from diag.serve.store import Store
from diag.serve.worker import Worker


@dataclass
class Running:
    """``asked``: the windows that were judged."""

    url: str
    store: Store
    worker: Worker
    asked: list[Window] = field(default_factory=list)

    def post(self, body: Any, **options: Any) -> requests.Response:
        kind = {"data": body} if isinstance(body, bytes) else {"json": body}
        return requests.post(f"{self.url}/webhook", timeout=10, **kind, **options)

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(self.url + path, timeout=10, allow_redirects=False, **options)

    def until_idle(self, seconds: float = 20.0) -> None:
        """Wait until no question waits."""
        ends = time.monotonic() + seconds
        while self.store.waiting():
            assert time.monotonic() < ends, "questions still wait"
            time.sleep(0.02)


Start = Callable[..., Running]


@pytest.fixture(scope="session")
def known() -> Verdict:
    """A verdict that the stand-in gives to every question."""
    return api.demo("context_growth")


@pytest.fixture
def start(known: Verdict) -> Iterator[Start]:
    """``start(judge=…, store=…, settings…)`` runs a service; all are stopped at the end."""
    running: list[tuple[uvicorn.Server, threading.Thread, Worker, Store]] = []

    def begin(
        judge: Callable[[Window], Verdict] | None = None,
        store: Store | None = None,
        again_seconds: float = 3600.0,
        tell: Any = None,
        working: bool = True,
        **settings: Any,
    ) -> Running:
        kept = store or Store(":memory:")
        asked: list[Window] = []

        def judged(window: Window) -> Verdict:
            asked.append(window)
            return judge(window) if judge else known

        worker = Worker(kept, judged, look_back_seconds=600.0, again_seconds=again_seconds, tell=tell)
        chosen = Settings("127.0.0.1", 0, **settings)
        app = application(
            kept, chosen, worker.counted, runbook=lambda id: f"# {id}" if id == "watchdog" else None
        )
        server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        if working:
            worker.start()
        running.append((server, thread, worker, kept))
        port = server.servers[0].sockets[0].getsockname()[1]
        return Running(f"http://127.0.0.1:{port}", kept, worker, asked)

    yield begin
    for server, thread, worker, kept in running:
        worker.stop()
        server.should_exit = True
        thread.join(10)
        kept.close()
