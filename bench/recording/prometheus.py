"""A real Prometheus over the engines, and its raw samples as VictoriaMetrics lines."""

from __future__ import annotations

import gzip
import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Prometheus"]

_NODE_NAMES = (
    "node_cpu_seconds_total|node_load.*|node_memory_(MemAvailable|MemTotal|SwapFree)_bytes|node_netstat_Tcp_RetransSegs"
    "|node_network_(receive|transmit)_(bytes|drop|errs)_total|node_pressure_.*|node_vmstat_(oom_kill|pgmajfault)|up"
)


@dataclass(slots=True)
class Prometheus:
    """Scrapes every two seconds; ``engine_ports`` become instances vllm-0:8000, vllm-1:8000, …"""

    binary: Path
    folder: Path
    port: int
    engine_ports: Sequence[int]
    node_port: int | None
    engine_core: int
    _process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Start it and wait until it answers; raise ``RuntimeError`` when it does not within 30 s."""
        self.folder.mkdir(parents=True)
        config = self.folder / "prometheus.yml"
        config.write_text(self._config())
        command = [str(self.binary), f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{self.port}"]
        with (self.folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2):
                    return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError(f"Prometheus was not ready after 30 s; read {self.folder / 'prometheus.log'}")

    def stop(self) -> None:
        """End it, by its process id."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=20)
            self._process = None

    def export(self, job: str, start: int, end: int, path: Path) -> int:
        """Write every raw sample of ``job`` in [start, end] (unix seconds); return the count of series."""
        query = urllib.parse.urlencode({"query": f'{{job="{job}"}}[{end - start}s]', "time": end})
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{query}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            rows = json.load(answer)["data"]["result"]
        if not rows:
            return 0
        rows.sort(key=lambda row: sorted(row["metric"].items()))
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.GzipFile(path, "wb", mtime=0) as out:
            for row in rows:
                times = [round(at * 1000) for at, _ in row["values"]]
                values = [_number(text) for _, text in row["values"]]
                line = {"metric": row["metric"], "values": values, "timestamps": times}
                out.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        return len(rows)

    def _config(self) -> str:
        targets = [
            {
                "targets": [f"127.0.0.1:{port}"],
                "labels": {"instance": f"vllm-{place}:8000"},
            }
            for place, port in enumerate(self.engine_ports)
        ]
        jobs: list[dict[str, object]] = [{"job_name": "vllm", "static_configs": targets}]
        if self.node_port is not None:
            node = {"targets": [f"127.0.0.1:{self.node_port}"], "labels": {"instance": "node-0:9100"}}
            jobs.append(
                {
                    "job_name": "node",
                    "static_configs": [node],
                    "metric_relabel_configs": [
                        {"source_labels": ["__name__"], "regex": _NODE_NAMES, "action": "keep"},
                        # As if the engine's core were the node: the other runs the client and strangers.
                        {"source_labels": ["cpu"], "regex": f"|{self.engine_core}", "action": "keep"},
                        {"source_labels": ["device"], "regex": "|lo", "action": "keep"},
                    ],
                }
            )
        # JSON is YAML.
        every = {"scrape_interval": "2s", "scrape_timeout": "2s"}
        return json.dumps({"global": every, "scrape_configs": jobs})


def _number(text: str) -> float | int | str:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        return text
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
