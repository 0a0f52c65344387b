"""Print the figures of DESIGN: CPU seconds (user + system of the child), peak memory, and their targets."""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bench import exporter, proxy, sessions
from bench.measuring import Cost, cost_of, diag
from bench.store import PULL_EVERYTHING, filled, victoria_metrics
from bench.windows import long_lines, write_bundle

__all__ = ["main"]

_START = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
_STEP_SECONDS = 15


def _row(what: str, cost: Cost, target: str, note: str = "") -> None:
    peak = f"{cost.peak_bytes / 1e6:,.0f} MB"
    print(f"{what:<58} {cost.cpu_seconds:>7.2f} s {cost.wall_seconds:>7.2f} s {peak:>9}  {target:<18} {note}")
    sys.stdout.flush()


def _leading(cost: Cost) -> str:
    return f"leading: {json.loads(cost.output)['leading']}"


def _start_up() -> None:
    _row("diag --help", cost_of(diag("--help"), repeat=5), "<= 0.35 s")
    cost = cost_of(diag("demo", "--json"), repeat=3)
    _row("diag demo", cost, "<= 2.5 s", _leading(cost))


def _bundle(folder: Path) -> None:
    lines = long_lines(hours=8, calm_hours=7, step_seconds=_STEP_SECONDS, gpus=8)
    path = folder / "bundle"
    write_bundle(path, lines, 100_000, _START, _STEP_SECONDS)
    cost = cost_of(diag("triage", str(path), "--json"))
    what = f"{len(lines)} series x 8 h at 15 s, 100,000 request records"
    _row(what, cost, "<= 4 s, 600 MB", _leading(cost))


def _store(folder: Path) -> None:
    lines = long_lines(hours=6, calm_hours=5.25, step_seconds=_STEP_SECONDS, gpus=0)
    end = _START + 6 * 3600
    with victoria_metrics(folder / "store") as url:
        if url is None:
            print("15,000 series in VictoriaMetrics: not measured, victoria-metrics is not installed")
            return
        series = filled(url, lines, 15_000, _START, _STEP_SECONDS)
        window = ("--from", str(_START), "--to", str(end))
        cost = cost_of(diag("triage", url, *window, "--json"))
        _row(f"{series:,} series x 6 h at 15 s, triage of a store", cost, "<= 5 s", _leading(cost))
        everything = f"{url}/api/v1/export?match%5B%5D=%7B__name__!%3D%22%22%7D&start={_START}&end={end}"
        pulled = cost_of([sys.executable, "-c", PULL_EVERYTHING, everything])
        _row("  against pulling every sample of them", pulled, "", f"{int(pulled.output):,} samples")


def main() -> None:
    """Measure and print."""
    print(f"{'':<58} {'CPU':>9} {'wall':>9} {'peak':>9}  target")
    with tempfile.TemporaryDirectory(prefix="diag-bench-") as name:
        _start_up()
        _bundle(Path(name))
        _store(Path(name))
    exporter.main()
    sessions.main()
    proxy.main()


if __name__ == "__main__":
    main()
