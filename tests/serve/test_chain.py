"""The whole way: a Prometheus that holds an incident, a real Alertmanager, `diag serve`, the page."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from diag import api
from diag.accuracy.corpus import make
from diag.sources.protocol import Question
from tests.rules.replay import stored
from tests.rules.rulefiles import alerts, recordings, written
from tests.rules.servers import binary, free_port, prometheus_on, running
from tests.rules.timeline import moved

pytestmark = pytest.mark.server
_ALERT = "GPUThermalThrottle"
_WITHIN_SECONDS = 30.0
_EXTERNAL = {"llmdiag_url": "http://127.0.0.1", "grafana_url": "http://127.0.0.1"}


@contextmanager
def _alertmanager(folder: Path, hook: str) -> Iterator[str]:
    config = {
        "route": {"receiver": "diag", "group_wait": "1s", "group_interval": "2s", "group_by": ["alertname"]},
        "receivers": [{"name": "diag", "webhook_configs": [{"url": f"{hook}/webhook"}]}],
    }
    file = folder / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    port = free_port()
    command = [
        binary("prometheus-alertmanager"), f"--config.file={file}", f"--storage.path={folder / 'am'}",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", "--log.level=warn",
    ]  # fmt: skip
    with running(command, f"http://127.0.0.1:{port}", log=folder / "am.log") as url:
        yield url


def _prometheus(folder: Path, manager: str) -> Any:
    """One that holds the incident as if it were happening now, with the shipped rules, hastened."""
    bundle = make("develop", "thermal_throttle", 10, severity=1.0).bundle
    names = frozenset(one.labels["__name__"] for one in bundle.series())
    begins = time.time() - bundle.window.seconds
    stored(folder / "data", folder / "raw.om", moved(bundle, begins, names).series)
    chosen = [rule for rule in alerts() if rule.alert == _ALERT]
    quick = [replace(rule, for_seconds=1.0, keep_firing_seconds=0.0) for rule in chosen]
    rules = folder / "rules.yml"
    rules.write_text(written([*recordings(), *quick], interval="1s"), encoding="utf-8")
    config = {
        "global": {"evaluation_interval": "1s", "external_labels": _EXTERNAL},
        "rule_files": [str(rules)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [manager.removeprefix("http://")]}]}]},
    }
    return prometheus_on(folder / "data", "--rules.alert.resend-delay=1s", config=yaml.safe_dump(config))


def test_an_alert_that_fires_finds_its_cause_on_the_page(tmp_path: Path) -> None:
    serve_port = free_port()
    hook = f"http://127.0.0.1:{serve_port}"
    with ExitStack() as stack:
        manager = stack.enter_context(_alertmanager(tmp_path, hook))
        store_url = stack.enter_context(_prometheus(tmp_path, manager))
        command = [
            sys.executable, "-m", "diag", "serve", store_url, "--listen", f"127.0.0.1:{serve_port}",
            "--store", str(tmp_path / "verdicts.sqlite"), "--look-back", "2h",
        ]  # fmt: skip
        stack.enter_context(running(command, hook, log=tmp_path / "serve.log"))
        fired = _until(lambda: _active(manager), 40.0)
        at = time.monotonic()
        told = _until(lambda: _judged(hook), _WITHIN_SECONDS)
        print(f"alert → page: {time.monotonic() - at:.1f} s")
        assert fired["labels"]["alertname"] == _ALERT
        assert told["leading"] == "thermal_throttle"
        assert told["labels"]["alertname"] == _ALERT
        page = requests.get(f"{hook}/incidents/{told['id']}", timeout=10).text
        assert "thermal_throttle" in page
        assert "firing" in page
        assert f"by {_ALERT}," in page
        assert '<a href="/runbooks/thermal_throttle">' in page
        assert requests.get(f"{hook}/runbooks/thermal_throttle", timeout=10).ok
        # The store has its alerts on record, for a look at it later and for a bundle made of it.
        seen = _until(lambda: api.triage(store_url, question=Question(now=time.time())).fired or None, 40.0)
        assert {one.alert for one in seen} == {_ALERT}
        api.record(store_url, tmp_path / "recorded.zip", question=Question(now=time.time()))
        assert {one.alert for one in api.triage(tmp_path / "recorded.zip").fired} == {_ALERT}


def _active(manager: str) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = requests.get(f"{manager}/api/v2/alerts", timeout=5).json()
    return next(iter(found), None)


def _judged(hook: str) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = requests.get(f"{hook}/api/verdicts", timeout=10).json()
    return next((one for one in found if one["state"] in ("done", "failed")), None)


def _until(ask: Any, seconds: float) -> Any:
    ends = time.monotonic() + seconds
    while True:
        found = ask()
        if found is not None:
            return found
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.2)
