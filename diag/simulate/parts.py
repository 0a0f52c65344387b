"""A bundle taken apart in memory, so that pure functions can change it and write it back.

    load(folder or tar.gz) -> Bundle -> overlays, mutilations -> save(bundle, folder)

This is not the reader that triage uses (``diag.sources.bundle``): it keeps every series and every
file, known to an engine file or not, and trusts its input.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from diag.errors import BundleError, BundleUnreadable, UsageError
from diag.model import Floats, Window
from diag.signals.frame import RawSeries

__all__ = ["Bundle", "Record", "load", "read", "save", "write_archive"]

_INFINITE = (float("inf"), float("-inf"))
_MARK = "SIMULATED: "
_NO_DATE = (1980, 1, 1, 0, 0, 0)  # the first that zip knows

Record = Mapping[str, Any]
"""One line of a request log, as written."""


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A ``diag.bundle/1`` in parts.

    ``meta`` is bundle.json; ``metrics`` holds raw series by file stem (``engine``, ``node``, ``gpu``);
    ``requests`` are the lines of all request logs; ``files`` carries logs, traces and events as bytes,
    by their path in the bundle.
    """

    meta: Mapping[str, Any]
    metrics: Mapping[str, tuple[RawSeries, ...]]
    requests: tuple[Record, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in bundle.json."""
        return str(self.meta["name"])

    @property
    def window(self) -> Window:
        """The recorded span, unix seconds."""
        span = self.meta["window"]
        return Window(float(span["from"]), float(span["to"]))

    @property
    def label(self) -> Mapping[str, Any]:
        """The right answer; empty when the bundle has none."""
        return self.meta.get("label") or {}

    def series(self, name: str = "") -> Iterator[RawSeries]:
        """All raw series, or those called ``name``."""
        for group in self.metrics.values():
            for series in group:
                if not name or series.labels["__name__"] == name:
                    yield series

    def with_meta(self, **changes: Any) -> Bundle:
        """A copy with other entries in bundle.json."""
        return replace(self, meta={**self.meta, **changes})

    def with_metrics(self, **groups: Iterable[RawSeries]) -> Bundle:
        """A copy with metric files added or replaced, by stem."""
        added = {stem: tuple(items) for stem, items in groups.items()}
        return replace(self, metrics={**self.metrics, **added})

    def with_note(self, text: str) -> Bundle:
        """A copy whose notes begin with what was made, so that nobody takes it for a recording."""
        before = str(self.meta.get("notes") or "").removeprefix(_MARK)
        return self.with_meta(notes=f"{_MARK}{text} {before}".rstrip())


def load(path: Path) -> Bundle:
    """Take apart a bundle folder or ``.tar.gz``.

    Raises:
        BundleUnreadable: it is damaged, or holds no bundle.json.
    """
    if path.is_dir():
        files = (item for item in sorted(path.rglob("*")) if item.is_file())
        return read({item.relative_to(path).as_posix(): item.read_bytes() for item in files}, str(path))
    try:
        return read(_unpacked(path.read_bytes()), str(path))
    except (OSError, EOFError, tarfile.TarError) as error:
        raise BundleUnreadable(f"{path}: {error}", hint="give a bundle folder or .tar.gz") from error


def read(members: Mapping[str, bytes], ref: str) -> Bundle:
    """Build a bundle from its files by path; ``ref`` names it in errors."""
    if "bundle.json" not in members:
        raise BundleUnreadable(f"{ref} holds no bundle.json", hint="give a bundle folder or .tar.gz")
    metrics: dict[str, tuple[RawSeries, ...]] = {}
    requests: list[Record] = []
    rest: dict[str, bytes] = {}
    for path, data in sorted(members.items()):
        kind = path.partition("/")[0]
        if kind == "metrics" and path.removesuffix(".gz").endswith(".jsonl"):
            metrics[Path(path).name.partition(".")[0]] = tuple(map(_series, _lines(path, data)))
        elif kind == "requests":
            requests += _lines(path, data)
        elif path != "bundle.json":
            rest[path] = data
    return Bundle(json.loads(members["bundle.json"]), metrics, tuple(requests), rest)


def save(bundle: Bundle, folder: Path) -> Path:
    """Write ``bundle`` to ``folder`` (made if need be) and return it. Equal bundles give equal bytes."""
    for path, data in _members(bundle).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return folder


def write_archive(bundle: Bundle, path: Path) -> Path:
    """Write ``bundle`` to ``path``, a ``.zip`` or ``.tar.gz``, and return it. Equal bundles give equal bytes.

    Raises:
        UsageError: the name ends otherwise.
        BundleError: the file cannot be written.
    """
    kind = path.name.lower()
    if not kind.endswith((".zip", ".tar.gz", ".tgz")):
        raise UsageError(
            f"{path.name} is neither a .zip nor a .tar.gz", hint="name the bundle so, or a folder"
        )
    members = sorted(_members(bundle).items())
    packed = _zipped(members) if kind.endswith(".zip") else _tarred(members)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(packed)
    except OSError as error:
        raise BundleError(
            f"{path} cannot be written ({error.strerror})", hint="choose another place"
        ) from error
    return path


def _members(bundle: Bundle) -> dict[str, bytes]:
    members = {"bundle.json": json.dumps(bundle.meta, indent=1, ensure_ascii=False).encode() + b"\n"}
    for stem, group in bundle.metrics.items():
        members[f"metrics/{stem}.jsonl.gz"] = _packed(map(_series_line, group))
    if bundle.requests:
        members["requests/requests.jsonl.gz"] = _packed(bundle.requests)
    return {**bundle.files, **members}


def _zipped(members: Iterable[tuple[str, bytes]]) -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name, _NO_DATE), data)
    return into.getvalue()


def _tarred(members: Iterable[tuple[str, bytes]]) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(into.getvalue(), compresslevel=1, mtime=0)


def _unpacked(archive: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for info in tar:
            stream = tar.extractfile(info)
            if stream is not None:
                found[info.name.removeprefix("./")] = stream.read()
    roots = [name.removesuffix("bundle.json") for name in found if Path(name).name == "bundle.json"]
    root = min(roots, key=len, default="")
    return {name.removeprefix(root): data for name, data in found.items()}


def _lines(path: str, data: bytes) -> Iterator[dict[str, Any]]:
    text = gzip.decompress(data) if path.endswith(".gz") else data
    return (json.loads(line) for line in text.splitlines() if line.strip())


def _packed(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return gzip.compress(msgspec.json.Encoder().encode_lines(rows), compresslevel=1, mtime=0)


def _series(line: Mapping[str, Any]) -> RawSeries:
    times = np.asarray(line["timestamps"], dtype=np.float64) / 1000.0
    values = np.asarray([_number(value) for value in line["values"]], dtype=np.float64)
    return RawSeries(line["metric"], times, values)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _series_line(series: RawSeries) -> dict[str, Any]:
    return {
        "metric": dict(series.labels),
        "values": _plain(series.values),
        "timestamps": np.rint(series.times * 1000).astype(np.int64).tolist(),
    }


def _plain(values: Floats) -> list[Any]:
    plain: list[Any] = values.tolist()
    if np.isinf(values).any():
        return [("+Inf" if value > 0 else "-Inf") if value in _INFINITE else value for value in plain]
    return plain  # the encoder writes NaN as null
