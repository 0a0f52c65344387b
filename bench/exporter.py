"""What the exporter costs: start-up, a full pass and its page, a scrape. CPU time, driver-free."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from diag_exporter.demo import Card, Guest, Script, ScriptedLibrary
from diag_exporter.gpu import GpuOptions
from diag_exporter.gpu.collectors import build
from diag_exporter.gpu.fleet import Fleet
from diag_exporter.page import compressed
from diag_exporter.serve import Exporter
from diag_exporter.snapshot import Sampler

__all__ = ["main"]

_GPUS = 8
_SCRAPES = 200
_EXPORTERS = Path(__file__).resolve().parents[1] / "exporters"


def eight_cards() -> Script:
    """A full node: eight cards, an engine and three other processes on each."""
    guests = tuple(Guest(1000 + one, f"worker{one}", 1e10, 0.2) for one in range(4))
    never = dict.fromkeys(
        ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake", "sync_boost"), (0.0,)
    )
    card = {"times": (0.0,), "sm_mhz": (1980.0,), "celsius": (60.0,), "watts": (600.0,), "busy": (0.9,)}
    return Script(
        tuple(
            Card(
                uuid=f"GPU-00000000-0000-0000-0000-{place:012d}",
                name="NVIDIA H200 (made up)",
                bus=f"00000000:{place:02X}:00.0",
                reasons=(4,),
                held=never,
                guests=guests,
                **card,  # type: ignore[arg-type]
            )
            for place in range(_GPUS)
        )
    )


def cpu_seconds(work: Callable[[], object], repeat: int) -> float:
    """CPU seconds of one call, the least of three rounds: whatever else the machine does can only add."""
    rounds = []
    for _ in range(3):
        began = time.process_time()
        for _ in range(repeat):
            work()
        rounds.append((time.process_time() - began) / repeat)
    return min(rounds)


def passes() -> None:
    """Print a full pass over eight cards and its page, by parts."""
    fleet = Fleet(ScriptedLibrary(eight_cards()))
    clock = _Clock()
    sampler = Sampler(build(fleet, GpuOptions()), clock=clock, name="gpu")
    exporter = Exporter({"gpu": sampler})
    sampler.sample()

    def sample() -> None:
        clock.now += 15.0  # so that no reading is shared with the pass before
        sampler.sample()

    series = sum(len(some) for some in sampler.snapshot().rows.values())
    reading, page = cpu_seconds(sample, 20), cpu_seconds(exporter.page, 20)
    body = exporter.page()
    packed = cpu_seconds(lambda: compressed(body), 20)
    what = f"full pass, {_GPUS} GPUs, scripted driver ({series} series)"
    _row(what, f"{reading * 1e3:.2f} ms")
    _row(f"its page ({len(body) / 1e3:.0f} kB) / gzip", f"{page * 1e3:.2f} / {packed * 1e3:.2f} ms")
    _row("pass and page", f"{(reading + page) * 1e3:.2f} ms", "<= 10 ms")


class _Clock:
    """Unix seconds that jump over what is shared between passes."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def start_up() -> None:
    """Print what a process has cost by its first page."""
    with _running("all", "--engine", "http://127.0.0.1:9") as (pid, url):
        cpu, peak = _usage(pid)
        _get(f"{url}/metrics")
    _row("diag-exporter all: start to first page", f"{cpu:.2f} s, {peak / 1e6:.0f} MB", "<= 0.5 s, 60 MB")


def scrapes() -> None:
    """Print the server's CPU time of a scrape over loopback."""
    with _running("demo") as (pid, url):
        for encoding in ("identity", "gzip"):
            before = _usage(pid)[0]
            for _ in range(_SCRAPES):
                _get(f"{url}/metrics", encoding)
            spent = (_usage(pid)[0] - before) / _SCRAPES
            _row(f"a scrape of the demo, {encoding} (sampling included)", f"{spent * 1e3:.2f} ms")


@contextmanager
def _running(*arguments: str) -> Iterator[tuple[int, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "diag_exporter", *arguments, "--listen", f"127.0.0.1:{port}"],
        env={**os.environ, "PYTHONPATH": str(_EXPORTERS)}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 20
        while not _get(f"{url}/-/ready"):
            if time.monotonic() > until:
                raise RuntimeError("the exporter does not become ready")
            time.sleep(0.05)
        yield process.pid, url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def _get(url: str, encoding: str = "identity") -> bytes:
    try:
        with urlopen(Request(url, headers={"Accept-Encoding": encoding}), timeout=5) as answer:
            body: bytes = answer.read()
            return body
    except (URLError, OSError):
        return b""


def _usage(pid: int) -> tuple[float, int]:
    """CPU seconds and peak resident bytes of a process, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return ticks / os.sysconf("SC_CLK_TCK"), peak * 1024


def _row(what: str, value: str, target: str = "") -> None:
    print(f"{what:<58} {value:>20}  {target}")
    sys.stdout.flush()


def main() -> None:
    """Measure and print."""
    start_up()
    passes()
    scrapes()


if __name__ == "__main__":
    main()
