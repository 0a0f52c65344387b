"""One incident all the way: a recorded page, a real Prometheus, a real Alertmanager, a webhook."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from diag.simulate import Bundle, load
from tests.rules.chain import EXTERNAL, Chain, chained, suppressed
from tests.rules.rulefiles import CHECKOUT, RULES
from tests.rules.servers import binary

_LOADED = ("LLMQueueGrowing", "LLMEngineUnhealthy", "GPUXidFatal", "GPUThermalThrottle", "LLMWatchdog")
_CARD = {"gpu": "0", "uuid": "GPU-1"}


@dataclass(slots=True)
class _Exporter:
    """What diag-exporter's page shows now; the test turns the screws."""

    started: float = field(default_factory=time.monotonic)
    xids: int = 0
    throttled: bool = False
    healthy: bool = False
    hot_seconds: float = 0.0

    def page(self) -> str:
        self.hot_seconds += (
            100.0 * self.throttled
        )  # a share of five minutes, and nobody waits for five minutes
        card = 'gpu="0",uuid="GPU-1"'
        return (
            f"# TYPE llmdiag_gpu_xid_total counter\n"
            f'llmdiag_gpu_xid_total{{{card},class="fatal",xid="79"}} {self.xids}\n'
            f"# TYPE llmdiag_gpu_clock_event_seconds_total counter\n"
            f'llmdiag_gpu_clock_event_seconds_total{{{card},reason="sw_thermal"}} {self.hot_seconds}\n'
            f'llmdiag_engine_up{{engine="vllm-0:8000"}} {int(self.healthy)}\n'
        )


@dataclass(slots=True)
class _Recorded:
    """The engine's page of a recording, two recorded seconds a second, held at its last scrape."""

    bundle: Bundle
    since: float
    started: float = field(default_factory=time.monotonic)

    def page(self) -> str:
        moment = self.since + 2.0 * (time.monotonic() - self.started)
        lines: list[str] = []
        for one in self.bundle.series():
            if one.labels.get("job") != "vllm" or re.match("up$|scrape_", one.labels["__name__"]):
                continue
            own = ((k, v) for k, v in one.labels.items() if k not in ("__name__", "instance", "job"))
            at = max(0, int(np.searchsorted(one.times, moment, side="right")) - 1)
            labels = ",".join(f'{k}="{v}"' for k, v in own)
            lines.append(f"{one.labels['__name__']}{{{labels}}} {float(one.values[at])!r}")
        return "\n".join(["# HELP vllm:num_requests_running what a page starts with", *lines, ""])


@dataclass(slots=True)
class _Running:
    chain: Chain
    exporter: _Exporter


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Running]:
    """The chain over the recorded burst and a small exporter."""
    bundle = load(CHECKOUT / "tests" / "incidents" / "load_burst")
    engine = _Recorded(bundle, float(bundle.label["onset"]) + 60.0)
    exporter = _Exporter()
    pages = {"vllm": engine.page, "llmdiag": exporter.page}
    with chained(tmp_path_factory.mktemp("chain"), pages, _LOADED) as chain:
        yield _Running(chain, exporter)


def _of(alerts: list[dict[str, Any]], name: str, status: str = "firing") -> list[dict[str, Any]]:
    return [one for one in alerts if one["labels"]["alertname"] == name and one["status"] == status]


@pytest.mark.server
def test_the_recorded_burst_arrives_with_all_it_should_say(running: _Running) -> None:
    arrived = running.chain.wait(lambda alerts: bool(_of(alerts, "LLMQueueGrowing")))
    (alert,) = _of(arrived, "LLMQueueGrowing")[:1]
    assert alert["receiver"] == "ticket"
    assert alert["labels"] == EXTERNAL | {
        "alertname": "LLMQueueGrowing", "severity": "warning", "component": "queue", "service": "llm",
        "instance": "vllm-0:8000", "job": "vllm", "model_name": "tiny", "producer": "vllm",
    }  # fmt: skip
    said = dict(alert["annotations"])
    assert re.fullmatch(
        r"At least \d+(\.\d+)? requests waited at vllm-0:8000 for the last five minutes; the queue grows, or "
        r"is longer than the batch\.",
        said.pop("description"),
    )
    assert said == {
        "summary": "The queue in front of an engine is long and does not drain.",
        "runbook_url": "https://diag.test/runbooks/queue_growing?v=0.1.0",
        "dashboard_url": "https://grafana.test/d/llmdiag-engine?var-instance=vllm-0%3A8000",
        "triage_url": "https://diag.test/triage?alertname=LLMQueueGrowing&instance=vllm-0%3A8000",
        "triage_command": "diag triage --last 2h",
    }


@pytest.mark.server
def test_the_webhook_speaks_version_4_and_the_watchdog_goes_elsewhere(running: _Running) -> None:
    running.chain.wait(lambda alerts: bool(_of(alerts, "LLMWatchdog")))
    assert {body["version"] for body in running.chain.received} == {"4"}
    (receiver,) = {one["receiver"] for one in _of(running.chain.alerts(), "LLMWatchdog")}
    assert receiver == "deadman"


@pytest.mark.server
def test_an_alert_resolves_when_its_cause_is_gone(running: _Running) -> None:
    running.chain.wait(lambda alerts: bool(_of(alerts, "LLMEngineUnhealthy")))
    running.exporter.healthy = True
    arrived = running.chain.wait(lambda alerts: bool(_of(alerts, "LLMEngineUnhealthy", "resolved")))
    assert {one["receiver"] for one in _of(arrived, "LLMEngineUnhealthy", "resolved")} == {"page"}


@pytest.mark.server
def test_a_fatal_xid_pages_and_mutes_what_follows_from_it(running: _Running) -> None:
    running.exporter.xids = 1
    arrived = running.chain.wait(lambda alerts: bool(_of(alerts, "GPUXidFatal")))
    (alert,) = _of(arrived, "GPUXidFatal")[:1]
    assert alert["receiver"] == "page"
    assert alert["labels"] | _CARD | {"severity": "critical"} == alert["labels"]
    running.exporter.throttled = True
    deadline = time.monotonic() + 40
    while "GPUThermalThrottle" not in suppressed(running.chain.alertmanager):
        assert time.monotonic() < deadline, suppressed(running.chain.alertmanager)
        time.sleep(0.2)
    assert suppressed(running.chain.alertmanager)["GPUThermalThrottle"] == ["GPUXidFatal"]
    assert _of(running.chain.alerts(), "GPUThermalThrottle") == []


def test_amtool_accepts_the_example_and_routes_by_severity() -> None:
    example = RULES / "alertmanager.yaml"
    binary("amtool")
    tool = str(shutil.which("amtool"))
    subprocess.run([tool, "check-config", str(example)], check=True, capture_output=True, timeout=30)
    for severity, receiver in (
        ("critical", "page"),
        ("warning", "ticket"),
        ("info", "nobody"),
        ("none", "deadman"),
    ):
        done = subprocess.run(
            [
                tool, "config", "routes", "test", f"--config.file={example}",
                "service=llm", f"severity={severity}",
            ],
            check=True, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert done.stdout.strip() == receiver
