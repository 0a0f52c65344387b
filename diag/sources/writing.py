"""Write a bundle: a folder, a .zip or a .tar.gz, the same bytes for the same input."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from diag.errors import BundleError
from diag.model import Event, Window
from diag.signals.frame import RawSeries
from diag.sources.bundle import SCHEMA
from diag.sources.hiding import HostNames

__all__ = ["BundleText", "write_bundle"]

_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class BundleText:
    """What goes into a bundle beside metrics, as lines without their end. File names are relative:
    ``{"requests/requests.jsonl": […]}``; they are gzipped and get ``.gz``."""

    files: Mapping[str, Iterable[str]] = field(default_factory=dict)
    events: Sequence[Event] = ()


def write_bundle(
    path: Path | str,
    raw: Iterable[RawSeries],
    *,
    window: Window,
    step_seconds: float,
    name: str = "",
    incident: Window | None = None,
    label: Mapping[str, object] | None = None,
    notes: str = "",
    text: BundleText | None = None,
    hosts: HostNames | None = None,
) -> Path:
    """Write ``path`` (``.zip``, ``.tar.gz``/``.tgz``, else a folder) and return it.

    Samples round-trip bit for bit (times in whole milliseconds). With ``hosts`` given, host names
    are hashed in labels and text. ``BundleError`` if ``path`` exists or cannot be written.
    """
    path = Path(path)
    if path.exists():
        raise BundleError(f"{path} exists already", hint="choose another name or remove it")
    text = text or BundleText()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".diag-", dir=path.parent) as scratch:
            folder = Path(scratch) / "bundle"
            folder.mkdir()
            _write_metrics(folder, raw, hosts)
            _write_text(folder, text, hosts)
            description = {
                "schema": SCHEMA,
                "name": name or path.name.split(".")[0],
                "window": {"from": _plain(window.start), "to": _plain(window.end)},
                "step_seconds": _plain(step_seconds),
                "incident": {"from": incident.start, "to": incident.end} if incident else None,
                "label": label,
                "notes": notes,
            }
            (folder / "bundle.json").write_bytes(
                msgspec.json.format(msgspec.json.encode(description), indent=1)
            )
            _deliver(folder, path, Path(scratch))
    except OSError as error:
        raise BundleError(
            f"cannot write {path}: {error.strerror or error}", hint="is the folder writable?"
        ) from None
    return path


def _write_metrics(folder: Path, raw: Iterable[RawSeries], hosts: HostNames | None) -> None:
    (folder / "metrics").mkdir()
    encoder = msgspec.json.Encoder()
    with _gz(folder / "metrics" / "metrics.jsonl.gz") as file:
        for one in raw:
            labels = hosts.labels(one.labels) if hosts else dict(one.labels)
            line = {
                "metric": dict(sorted(labels.items())),
                "values": _values(one.values),
                "timestamps": np.rint(one.times * 1000.0).astype(np.int64).tolist(),
            }
            file.write(encoder.encode(line) + b"\n")


def _values(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float | int | str | None]:
    if np.isfinite(values).all():
        return [_plain(value) for value in values.tolist()]
    return [
        _plain(value) if np.isfinite(value) else None if np.isnan(value) else "Inf" if value > 0 else "-Inf"
        for value in values.tolist()
    ]


def _plain(value: float) -> float | int:
    """Whole numbers without ``.0``, where that loses nothing (-0.0 would)."""
    return int(value) if value.is_integer() and 0 < abs(value) < 2**53 else value


def _write_text(folder: Path, text: BundleText, hosts: HostNames | None) -> None:
    for name, lines in sorted(text.files.items()):
        target = folder / f"{name}.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        with _gz(target) as file:
            for line in lines:
                file.write((hosts.text(line) if hosts else line).encode("utf-8", "replace") + b"\n")
    if text.events:
        with (folder / "events.jsonl").open("wb") as plain:
            for event in sorted(text.events, key=lambda one: (one.time, one.kind, one.target)):
                fields = {"time": event.time, "kind": event.kind, "target": event.target, "text": event.text}
                said = msgspec.json.encode(fields).decode()
                plain.write((hosts.text(said) if hosts else said).encode() + b"\n")


def _gz(path: Path) -> gzip.GzipFile:
    # No name and no time in the header: the same input gives the same bytes.
    return gzip.GzipFile(filename="", mode="wb", fileobj=path.open("wb"), mtime=0, compresslevel=6)


def _deliver(folder: Path, path: Path, scratch: Path) -> None:
    files = sorted(one for one in folder.rglob("*") if one.is_file())
    if path.suffix == ".zip":
        packed = scratch / "packed"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for one in files:
                info = zipfile.ZipInfo(one.relative_to(folder).as_posix(), _EPOCH)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                with one.open("rb") as source, archive.open(info, "w", force_zip64=True) as out:
                    shutil.copyfileobj(source, out)
        packed.replace(path)
    elif path.name.endswith((".tar.gz", ".tgz")):
        packed = scratch / "packed"
        with _gz(packed) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
            for one in files:
                member = tarfile.TarInfo(one.relative_to(folder).as_posix())
                member.size, member.mode = one.stat().st_size, 0o644
                with one.open("rb") as source:
                    tar.addfile(member, source)
        packed.replace(path)
    else:
        os.rename(folder, path)
