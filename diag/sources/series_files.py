"""Stream the metrics files of a bundle into raw series, whatever their form."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from diag.signals.frame import RawSeries
from diag.sources.exposition import BadLines, samples

__all__ = ["MetricsRead", "metrics_files", "read_metrics"]

_PAGE = re.compile(r"^(?P<target>.*?)[-_.]?(?P<time>\d{9,10}(?:\.\d+)?)\.prom(?:\.gz)?$")
_Key = tuple[tuple[str, str], ...]


class _Line(msgspec.Struct):
    metric: dict[str, str]
    values: list[float | None]
    timestamps: list[int]


class _OddLine(msgspec.Struct):
    metric: dict[str, str]
    values: list[float | str | None]
    timestamps: list[float]


class MetricsRead:
    """Iterate once to get the series; ``bad`` and ``notes`` are complete afterwards."""

    def __init__(self, files: Iterable[Path], wanted: frozenset[str] | None = None) -> None:
        """``wanted``: metric names to keep (None: all), decided before samples are stored."""
        self._files = tuple(files)
        self._wanted = wanted
        self.bad = BadLines()
        self.notes: list[str] = []
        self.series_read = 0

    def __iter__(self) -> Iterator[RawSeries]:
        # A page whose name lacks its time counts as bad rather than being guessed at.
        pages = [path for path in self._files if _form(path) == "prom"]
        for path in self._files:
            form = _form(path)
            if form == "jsonl":
                yield from self._json_lines(path)
            elif form == "om":
                yield from self._openmetrics([path])
        if pages:
            yield from self._openmetrics(pages)

    def _keeps(self, name: str) -> bool:
        return self._wanted is None or name in self._wanted

    def _lines(self, path: Path) -> Iterator[bytes]:
        """Lines as far as the file goes; a truncated gzip gives what came before the break."""
        try:
            with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
                yield from file
        except (EOFError, zlib.error, gzip.BadGzipFile, OSError) as error:
            why = "ends too early" if isinstance(error, EOFError) else "is damaged"
            self.notes.append(f"metrics file {path.name} {why}; what came before was used")

    def _json_lines(self, path: Path) -> Iterator[RawSeries]:
        fast = msgspec.json.Decoder(_Line)
        for number, line in enumerate(self._lines(path), start=1):
            if not line.strip():
                continue
            where = f"{path.name}:{number}"
            try:
                labels, times, values = _decoded(line, fast)
            except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
                self.bad.add(where, _why(error))
                continue
            name = labels.get("__name__", "")
            if not name:
                self.bad.add(where, "no __name__")
                continue
            self.series_read += 1
            if self._keeps(name):
                yield RawSeries(labels, times, values)

    def _openmetrics(self, paths: Iterable[Path]) -> Iterator[RawSeries]:
        columns: dict[_Key, tuple[array[float], array[float]]] = {}
        for path in paths:
            page_time, target = _page_name(path)
            if _form(path) == "prom" and page_time is None:
                self.bad.add(path.name, "no unix time in its name")
                continue
            self._collect(path, page_time, target, columns)
        for key, (times, values) in columns.items():
            self.series_read += 1
            yield RawSeries(dict(key), np.array(times, dtype=np.float64), np.array(values, dtype=np.float64))

    def _collect(
        self, path: Path, page_time: float | None, target: str,
        columns: dict[_Key, tuple[array[float], array[float]]],
    ) -> None:  # fmt: skip
        text = (line.decode("utf-8", "replace") for line in self._lines(path))
        has_up = False
        instances: set[str] = set()
        for sample in samples(text, path.name, self.bad, openmetrics=_form(path) == "om"):
            time = sample.time if sample.time is not None else page_time
            if time is None:
                self.bad.add(path.name, f"{sample.name} has no timestamp")
                continue
            labels = {**({"instance": target} if target else {}), **sample.labels}
            has_up = has_up or sample.name == "up"
            instances.add(labels.get("instance", ""))
            if self._keeps(sample.name):
                _append(columns, {"__name__": sample.name, **labels}, time, sample.value)
        if page_time is not None and not has_up:
            for instance in sorted(instances):
                _append(columns, {"__name__": "up", "instance": instance}, page_time, 1.0)


def metrics_files(folder: Path) -> tuple[Path, ...]:
    """Every metrics file under ``folder``, in order of name."""
    if not folder.is_dir():
        return ()
    return tuple(path for path in sorted(folder.rglob("*")) if path.is_file() and _form(path))


def read_metrics(folder: Path, wanted: frozenset[str] | None = None) -> MetricsRead:
    """All metrics files under ``folder``, streamed one line at a time.

    ``*.jsonl[.gz]``: VictoriaMetrics lines. ``*.om[.gz]``: OpenMetrics with timestamps.
    ``*<unix seconds>.prom[.gz]``: a page as scraped at that time; what stands before the time
    names the target where the page itself has no ``instance`` label (``vllm-0:8000-1795990732.prom``).
    """
    return MetricsRead(metrics_files(folder), wanted)


def _append(
    columns: dict[_Key, tuple[array[float], array[float]]], labels: dict[str, str], time: float, value: float
) -> None:
    key = tuple(sorted(labels.items()))
    times, values = columns.setdefault(key, (array("d"), array("d")))
    times.append(time)
    values.append(value)


def _form(path: Path) -> str:
    found = re.search(r"\.(jsonl|om|prom)(\.gz)?$", path.name)
    return found.group(1) if found else ""


def _page_name(path: Path) -> tuple[float | None, str]:
    found = _PAGE.match(path.name) if _form(path) == "prom" else None
    return (float(found["time"]), found["target"]) if found else (None, "")


def _decoded(
    line: bytes, fast: msgspec.json.Decoder[_Line]
) -> tuple[
    dict[str, str], np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]]
]:
    one: _Line | _OddLine
    try:
        one = fast.decode(line)
    except msgspec.MsgspecError:
        # NaN and Inf as strings, or as the bare words that Python's json writes.
        one = msgspec.convert(json.loads(line), _OddLine, strict=False)
    if len(one.values) != len(one.timestamps):
        raise ValueError(f"{len(one.values)} values for {len(one.timestamps)} timestamps")
    times = np.array(one.timestamps, dtype=np.float64) / 1000.0
    if not np.isfinite(times).all():
        raise ValueError("a timestamp is not a number")
    return one.metric, times, np.array(one.values, dtype=np.float64)


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "not JSON"
    return str(error).split(" - at")[0][:80]
