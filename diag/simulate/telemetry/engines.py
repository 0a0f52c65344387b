"""What every serving engine's page needs: where it runs, what its process uses, how long a scrape takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from diag.model import Floats
from diag.simulate.observed import Engine, Run
from diag.simulate.plan import Replica, Settings
from diag.simulate.telemetry.lives import Life, lives_of, place_in
from diag.simulate.telemetry.page import Page

__all__ = ["NAMESPACE", "adapters", "by_life", "engine_page", "pod_of", "process_rows", "server", "setting"]

NAMESPACE = "llm"
_SCRAPE_SECONDS = 0.012
_SCRAPE_CPU_SECONDS = 0.004
_ADAPTER_SETS_MAX = 48
_HANDLER = "/v1/chat/completions"


def pod_of(replica: Replica) -> str:
    """The pod of an engine: the host part of its name."""
    return replica.name.rpartition(":")[0] or replica.name


def engine_page(run: Run, replica: Replica, job: str, own_prefix: str) -> Page:
    """An empty page of ``replica``; scrapes pass through the process that serves requests and wait in it."""
    seconds = _SCRAPE_SECONDS + replica.front_seconds.over(run.times)
    for start, length in replica.pauses:
        stuck = (run.times >= start) & (run.times < start + length)
        seconds[stuck] += start + length - run.times[stuck]
    labels = {"node": replica.host, "pod": pod_of(replica), "namespace": NAMESPACE}
    return Page(
        job, replica.name, labels, run.times, lives_of(run, replica), seconds, replica.name, own_prefix
    )


def by_life(page: Page) -> Iterator[tuple[Life, Floats]]:
    """Each life whose page is seen, with 1.0 where it is and NaN elsewhere, shape (n,)."""
    place = place_in(page.lives, page.times)
    for index, life in enumerate(page.lives):
        if (place == index).any():
            yield life, np.where(place == index, 1.0, np.nan)


def process_rows(page: Page, engine: Engine, start: float) -> None:
    """What the client library says of the process. ``start``: unix seconds of the window's start."""
    cpu = engine.counters["cpu_seconds"] + _SCRAPE_CPU_SECONDS * np.arange(page.times.size)
    page.counter("process_cpu_seconds_total", cpu, 2)
    page.gauge("process_resident_memory_bytes", engine.gauges["resident_bytes"])
    page.gauge("process_virtual_memory_bytes", 3.5 * engine.gauges["resident_bytes"])
    page.gauge("process_open_fds", 40.0 + engine.gauges["running"] + engine.gauges["waiting"])
    page.gauge("process_max_fds", 1_048_576.0)
    begun = np.full(page.times.shape, np.nan)
    for life, seen in by_life(page):
        begun[np.isfinite(seen)] = start + life.began
    page.gauge("process_start_time_seconds", begun, 2)


def server(page: Page, engine: Engine) -> None:
    """Answers by class of status; a class appears with its first answer."""
    for status in ("2xx", "4xx", "5xx"):
        row = engine.counters[f"http_{status}"]
        page.late("http_requests_total", row, handler=_HANDLER, method="POST", status=status)


def adapters(run: Run, replica: Replica) -> Iterator[tuple[str, str, Floats]]:
    """The sets of adapters that were running and waiting at scrapes, comma-separated, and when each was last
    seen (seconds since the window's start, NaN before it was), shape (n,)."""
    calls = [call for call in run.calls if call.adapter and call.replica == replica.name]
    latest: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for index, time in enumerate(run.times):
        now = float(time)
        running = {c.adapter for c in calls if c.scheduled <= now and not c.ended <= now}
        waiting = {
            c.adapter for c in calls if c.queued <= now and not c.scheduled <= now and not c.ended <= now
        }
        if running or waiting:
            key = (",".join(sorted(running)), ",".join(sorted(waiting)))
            if key in latest or len(latest) < _ADAPTER_SETS_MAX:
                latest.setdefault(key, []).append((index, now))
    for (running_names, waiting_names), seen in latest.items():
        row = np.full(run.times.shape, np.nan)
        for index, now in seen:
            row[index:] = now
        yield running_names, waiting_names, row


def setting(page: Page, value: Callable[[Settings], float]) -> Floats:
    """A setting over the lives of a process, NaN while no page is shown. Shape (n,)."""
    row = np.full(page.times.shape, np.nan)
    for life, seen in by_life(page):
        row[np.isfinite(seen)] = value(life.settings)
    return row
