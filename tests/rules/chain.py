"""The whole way of an alert, for real: page → Prometheus with the rules → Alertmanager → webhook.

The rules are those that ship, with one difference: they are evaluated every second and wait a second
where they wait minutes, since nobody has ten minutes to spare. The routes and inhibitions are the example's,
their receivers pointed at this process.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import requests
import yaml

from tests.rules.rulefiles import RULES, alerts, recordings, written
from tests.rules.servers import binary, free_port, prometheus_on, running, serving

__all__ = ["EXTERNAL", "Chain", "chained", "suppressed"]

EXTERNAL = {"llmdiag_url": "https://diag.test", "grafana_url": "https://grafana.test"}


@dataclass(slots=True)
class Chain:
    """A running chain. ``received`` are the webhook's bodies so far, ``pages`` what targets show now."""

    prometheus: str
    alertmanager: str
    received: list[dict[str, Any]]
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def alerts(self) -> list[dict[str, Any]]:
        """Every alert in every notification so far, oldest first, with its receiver."""
        return [{**one, "receiver": body["receiver"]} for body in self.received for one in body["alerts"]]

    def wait(
        self, wanted: Callable[[list[dict[str, Any]]], bool], *, seconds: float = 40.0
    ) -> list[dict[str, Any]]:
        """Wait until what has arrived satisfies ``wanted``; AssertionError with what it was otherwise."""
        deadline = time.monotonic() + seconds
        with self.arrived:
            while not wanted(self.alerts()):
                left = deadline - time.monotonic()
                names = [(one["labels"]["alertname"], one["status"]) for one in self.alerts()]
                assert left > 0, f"arrived so far: {names}"
                self.arrived.wait(left)
        return self.alerts()


@contextmanager
def chained(
    folder: Path, pages: Mapping[str, Callable[[], str]], alert_names: Sequence[str]
) -> Iterator[Chain]:
    """Start everything. ``pages``: what each scrape job's only target shows, asked at every scrape;
    ``alert_names``: the alerts that are loaded."""
    with ExitStack() as stack:
        received: list[dict[str, Any]] = []
        arrived = threading.Condition()

        def receive(_: str, body: bytes) -> str:
            with arrived:
                received.append(json.loads(body))
                arrived.notify_all()
            return ""

        hook = stack.enter_context(serving(receive))
        manager = stack.enter_context(_alertmanager(folder, hook))
        targets = {job: stack.enter_context(serving(_shown(page))) for job, page in pages.items()}
        rules = folder / "rules.yml"
        rules.write_text(_hasty(alert_names))
        config = _scraping(targets, manager, rules)
        # What fires before Alertmanager is discovered is lost, and by default sent again after a minute.
        again = "--rules.alert.resend-delay=2s"
        prometheus = stack.enter_context(prometheus_on(folder / "live", again, config=yaml.safe_dump(config)))
        yield Chain(prometheus, manager, received, arrived)


def _shown(page: Callable[[], str]) -> Callable[[str, bytes], str]:
    return lambda *_: page()


def _hasty(alert_names: Sequence[str]) -> str:
    chosen = [rule for rule in alerts() if rule.alert in alert_names]
    assert {rule.alert for rule in chosen} == set(alert_names), "an alert of the chain is not shipped"
    quick = [
        replace(rule, for_seconds=min(rule.for_seconds, 1.0), keep_firing_seconds=0.0) for rule in chosen
    ]
    return written([*recordings(), *quick], interval="1s")


def _scraping(targets: Mapping[str, str], manager: str, rules: Path) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "external_labels": EXTERNAL},
        "rule_files": [str(rules)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [manager.removeprefix("http://")]}]}]},
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [{"targets": [url.removeprefix("http://")]}],
                "relabel_configs": [{"target_label": "instance", "replacement": f"{job}-0:8000"}],
            }
            for job, url in targets.items()
        ],
    }


@contextmanager
def _alertmanager(folder: Path, hook: str) -> Iterator[str]:
    config = yaml.safe_load((RULES / "alertmanager.yaml").read_text(encoding="utf-8"))
    config["receivers"] = [
        one
        | (
            {"webhook_configs": [{"url": f"{hook}/{one['name']}", "send_resolved": True}]}
            if len(one) > 1
            else {}
        )
        for one in config["receivers"]
    ]
    _hurry(config["route"])
    file = folder / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        binary("prometheus-alertmanager"),
        f"--config.file={file}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    with running(command, f"http://127.0.0.1:{port}", log=folder / "alertmanager.log") as url:
        yield url


def _hurry(route: dict[str, Any]) -> None:
    """Seconds for minutes, on every route."""
    route |= {"group_wait": "1s", "group_interval": "2s"}
    for inner in route.get("routes") or ():
        _hurry(inner)


def suppressed(manager: str) -> dict[str, list[str]]:
    """Which alerts Alertmanager holds back, by name, and the names of those that hold them."""
    found: dict[str, list[str]] = {}
    every = requests.get(f"{manager}/api/v2/alerts", timeout=5).json()
    by_print = {one["fingerprint"]: one["labels"]["alertname"] for one in every}
    for one in every:
        if one["status"]["inhibitedBy"]:
            holders = [by_print[fingerprint] for fingerprint in one["status"]["inhibitedBy"]]
            found[one["labels"]["alertname"]] = holders
    return found
