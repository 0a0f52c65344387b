"""Long windows made from a short recording: its increments are laid end to end.

Names, labels, histogram shapes and the relations between series stay the engine's own; only the
length and the number of series grow. GPU series are drawn, and named as dcgm-exporter names them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from diag.model import Floats

__all__ = ["Line", "long_lines", "long_requests", "write_bundle"]

_RECORDING = Path(__file__).resolve().parents[1] / "tests" / "incidents" / "load_burst"
_RECORDED_STEP_SECONDS = 2
_COUNTERS = ("_total", "_bucket", "_sum", "_count")
_COUNTER_FAMILIES = ("node_netstat_", "node_vmstat_")


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One series: labels and values, one value a step."""

    labels: dict[str, str]
    values: Floats


def _meta() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((_RECORDING / "bundle.json").read_text("utf-8"))
    return loaded


def _recorded() -> Iterator[Line]:
    for path in sorted((_RECORDING / "metrics").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                raw = json.loads(line)
                yield Line(raw["metric"], np.asarray(raw["values"], dtype=np.float64))


def _is_counter(name: str) -> bool:
    return name.endswith(_COUNTERS) or name.startswith(_COUNTER_FAMILIES)


def _stretched(line: Line, calm: int, steps: int, step_seconds: int) -> Floats:
    """``steps`` values: the healthy part repeated for ``calm`` steps, then the incident repeated."""
    meta = _meta()
    split = int((meta["label"]["onset"] - meta["window"]["from"]) // _RECORDED_STEP_SECONDS)
    if not _is_counter(line.labels["__name__"]):
        before, after = line.values[:split], line.values[split:]
        return np.concatenate([np.resize(before, calm), np.resize(after, steps - calm)])
    increments = np.diff(line.values) * (step_seconds / _RECORDED_STEP_SECONDS)
    before, after = increments[: split - 1], increments[split:]
    laid = np.concatenate([np.resize(before, calm), np.resize(after, steps - calm)])
    total: Floats = line.values[0] + np.cumsum(laid)
    fractional = line.labels["__name__"].endswith(("_sum", "_seconds_total"))
    return total if fractional else np.asarray(np.rint(total))


def _gpu_lines(gpus: int, steps: int) -> Iterator[Line]:
    draw = np.random.default_rng(7)
    fields = {
        "DCGM_FI_DEV_GPU_UTIL": (92, 4),
        "DCGM_FI_DEV_MEM_COPY_UTIL": (55, 5),
        "DCGM_FI_DEV_SM_CLOCK": (1755, 15),
        "DCGM_FI_DEV_MEM_CLOCK": (2619, 0),
        "DCGM_FI_DEV_GPU_TEMP": (58, 2),
        "DCGM_FI_DEV_MEMORY_TEMP": (66, 2),
        "DCGM_FI_DEV_POWER_USAGE": (540, 30),
        "DCGM_FI_DEV_FB_USED": (73_000, 0),
        "DCGM_FI_DEV_XID_ERRORS": (0, 0),
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": (0, 0),
    }
    for gpu in range(gpus):
        for name, (level, spread) in fields.items():
            labels = {
                "__name__": name,
                "gpu": str(gpu),
                "UUID": f"GPU-{gpu:08d}-0000-0000-0000-000000000000",
                "modelName": "NVIDIA H100 80GB HBM3",
                "Hostname": "node-0",
                "instance": "node-0:9400",
                "job": "dcgm",
            }
            yield Line(labels, np.rint(level + spread * draw.standard_normal(steps)))


def long_lines(hours: float, calm_hours: float, step_seconds: int, gpus: int) -> list[Line]:
    """Every recorded series over ``hours`` at ``step_seconds``, and ten series a GPU."""
    steps = int(hours * 3600 / step_seconds) + 1
    calm = int(calm_hours * 3600 / step_seconds)
    lines = [Line(line.labels, _stretched(line, calm, steps, step_seconds)) for line in _recorded()]
    return [*lines, *_gpu_lines(gpus, steps)]


def _calm_share(before: int, after: int, calm_seconds: float, incident_seconds: float) -> float:
    """Share of all records that fall into the calm part when both parts keep their recorded rates."""
    window, onset = _meta()["window"], _meta()["label"]["onset"]
    calm = before / (onset - window["from"]) * calm_seconds
    incident = after / (window["to"] - onset) * incident_seconds
    return float(calm / (calm + incident))


def long_requests(count: int, start: float, onset: float, end: float) -> Iterator[dict[str, Any]]:
    """``count`` records, recorded ones repeated on either side of ``onset``; ascending in time."""
    with gzip.open(_RECORDING / "requests" / "requests.jsonl.gz", "rt", encoding="utf-8") as lines:
        recorded = [json.loads(line) for line in lines]
    marked = _meta()["label"]["onset"]
    before = [one for one in recorded if one["ts"] < marked]
    after = [one for one in recorded if one["ts"] >= marked]
    calm = round(count * _calm_share(len(before), len(after), onset - start, end - onset))
    parts = ((before, start, onset, calm), (after, onset, end, count - calm))
    for known, since, until, many in parts:
        for index in range(many):
            one = dict(known[index % len(known)])
            one["ts"] = round(since + (until - since) * index / many, 3)
            one["request_id"] = f"r{since:.0f}-{index}"
            one["session"] = f"{one.get('session', 's')}-{index // len(known)}"
            yield one


def write_bundle(folder: Path, lines: list[Line], requests: int, start: int, step_seconds: int) -> None:
    """Write a ``diag.bundle/1`` with ``lines`` and ``requests`` records; the incident is the last eighth."""
    steps = len(lines[0].values)
    end = start + (steps - 1) * step_seconds
    onset = end - (end - start) / 8
    times = [1000 * (start + index * step_seconds) for index in range(steps)]
    (folder / "metrics").mkdir(parents=True)
    (folder / "requests").mkdir()
    with gzip.open(folder / "metrics" / "all.jsonl.gz", "wt", encoding="utf-8", compresslevel=1) as out:
        for line in lines:
            row = {"metric": line.labels, "values": line.values.tolist(), "timestamps": times}
            out.write(json.dumps(row) + "\n")
    with gzip.open(folder / "requests" / "all.jsonl.gz", "wt", encoding="utf-8", compresslevel=1) as out:
        for one in long_requests(requests, start, onset, end):
            out.write(json.dumps(one) + "\n")
    meta = {
        "schema": "diag.bundle/1",
        "name": "bench",
        "window": {"from": start, "to": end},
        "step_seconds": step_seconds,
        "incident": None,
        "label": None,
        "notes": "made by bench/windows.py",
    }
    (folder / "bundle.json").write_text(json.dumps(meta), encoding="utf-8")
