"""A real Prometheus with an engine whose telemetry is odd in every way that blinds a rule."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from diag.assets.holdings import Holdings
from diag.assets.rules.links import DEFAULT_LINKS
from diag.model import Window
from diag.sources.access import Client
from diag.sources.promapi import Api
from diag.sources.promstate import StoreState
from tests.rules.servers import binary, prometheus_on

END = 1_790_000_000
_SCRAPES, _EVERY_SECONDS = 60, 60

_ENGINE = '{instance="a:8000",job="vllm",model_name="m"}'
_BUCKET = '{{instance="a:8000",job="vllm",model_name="m",le="{}"}}'
_CARD = '{Hostname="n",instance="n:9400",job="dcgm",UUID="GPU-1"}'

# Name and labels -> what each scrape adds (a counter) or shows (a gauge).
COUNTERS = {
    "vllm:num_preemptions" + _ENGINE: 1.0,  # without _total
    "vllm:request_success_total" + _ENGINE: 2.0,  # without finished_reason
    "vllm:time_to_first_token_seconds_count" + _ENGINE: 2.0,
    "vllm:time_to_first_token_seconds_sum" + _ENGINE: 3.0,
    # --custom-histogram-buckets has taken 5.0 away
    "vllm:time_to_first_token_seconds_bucket" + _BUCKET.format("1.0"): 1.0,
    "vllm:time_to_first_token_seconds_bucket" + _BUCKET.format("10.0"): 2.0,
    "vllm:time_to_first_token_seconds_bucket" + _BUCKET.format("+Inf"): 2.0,
}
GAUGES = {
    'up{instance="a:8000",job="vllm"}': 1.0,
    'up{instance="n:9400",job="dcgm"}': 1.0,
    "vllm:num_requests_running" + _ENGINE: 2.0,
    "vllm:num_requests_running" + _ENGINE.replace("a:8000", "b:8000"): 2.0,
    "vllm_num_requests_waiting" + _ENGINE: 3.0,  # OpenMetrics' spelling
    "vllm:gpu_cache_usage_perc" + _ENGINE: 0.5,  # the old name
    "DCGM_FI_DEV_GPU_TEMP" + _CARD: 60.0,
}

_CONFIG = """
global:
  external_labels: {{llmdiag_url: "http://diag.test"}}
rule_files: ["{folder}/*.yml"]
"""


@dataclass(frozen=True)
class Odd:
    """The store: its address, the newest sample's time, and what it says of itself."""

    url: str
    end: float

    @property
    def state(self) -> StoreState:
        """What it says of itself."""
        return StoreState(Client(self.url))

    def holdings(self, end: float | None = None) -> Holdings:
        """What it holds in the hour up to ``end``."""
        until = self.end if end is None else end
        window = Window(until - 3600.0, until)
        return Holdings(Api(Client(self.url)), self.state.names(window), window)


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Iterator[Odd]:
    """It has loaded vLLM's recordings, and the SLO's alerts as of another release."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "samples.om").write_text(_openmetrics(), encoding="utf-8")
    subprocess.run(
        [binary("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet",
         str(folder / "samples.om"), str(folder / "data")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    rules = folder / "rules"
    rules.mkdir()
    (rules / "vllm.yml").write_bytes((checkout / "rules/engines/vllm.yml").read_bytes())
    slo = (checkout / "rules/alerts/slo.yml").read_text("utf-8")
    (rules / "slo.yml").write_text(slo.replace(f"?v={DEFAULT_LINKS.version}", "?v=0.0.9"), encoding="utf-8")
    with prometheus_on(folder / "data", config=_CONFIG.format(folder=rules)) as url:
        yield Odd(url, float(END))


def _openmetrics() -> str:
    times = [END - (_SCRAPES - 1 - number) * _EVERY_SECONDS for number in range(_SCRAPES)]
    lines = [
        f"{head} {step * number} {time}"
        for head, step in COUNTERS.items()
        for number, time in enumerate(times)
    ]
    lines += [f"{head} {value} {time}" for head, value in GAUGES.items() for time in times]
    return "\n".join([*lines, "# EOF", ""])
