"""Store, worker and web server put together, until a signal ends them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import uvicorn

from diag import api
from diag.errors import DiagError
from diag.model import Verdict
from diag.serve.app import application
from diag.serve.messages import message, post
from diag.serve.settings import Settings
from diag.serve.store import Incident, Store
from diag.serve.worker import Judge, Worker

__all__ = ["Plan", "run", "runbook_text"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. Times in seconds; ``notify_url`` "" sends nothing."""

    settings: Settings
    store: Path
    judge: Judge
    look_back_seconds: float
    again_seconds: float
    notify_url: str = ""


def run(plan: Plan) -> None:
    """Serve until SIGINT or SIGTERM."""
    store = Store(plan.store)

    def tell(verdict: Verdict, incidents: list[Incident]) -> None:
        post(plan.notify_url, message(verdict, incidents, plan.settings.address))

    worker = Worker(
        store, plan.judge, look_back_seconds=plan.look_back_seconds, again_seconds=plan.again_seconds,
        tell=tell if plan.notify_url else None,
    )  # fmt: skip
    app = application(store, plan.settings, worker.counted, runbook=runbook_text)
    worker.start()
    try:
        uvicorn.run(
            app, host=plan.settings.host, port=plan.settings.port, log_level="warning", access_log=False,
            server_header=False, timeout_keep_alive=5, limit_concurrency=200,
        )  # fmt: skip
    finally:
        worker.stop()
        store.close()


def runbook_text(id: str) -> str | None:
    """A shipped runbook as Markdown; None for a name that is none."""
    try:
        return api.runbook(id)
    except DiagError:
        return None
