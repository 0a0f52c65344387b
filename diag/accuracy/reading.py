"""From a bundle, on disk or in memory, to a case: one road, so that both give the same verdict."""

from __future__ import annotations

import json
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from diag.errors import BundleUnreadable
from diag.model import Case
from diag.simulate.parts import Bundle
from diag.sources.bundle import BundleSource
from diag.sources.gather import gather
from diag.sources.memory import MemorySource
from diag.sources.protocol import Attachments, Question, Source

__all__ = ["NOW", "case_at", "case_of", "description_at"]

NOW = 1_800_000_000.0
"""Stamps verdicts; no judgement depends on it."""


def case_of(bundle: Bundle) -> Case:
    """The case that ``diag triage`` would see, without packing the metrics and unpacking them again.

    Logs and records are read from files by design, so they pass through a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="diag-case-") as folder:
        source = MemorySource(
            (replace(one, times=np.rint(one.times * 1000.0) / 1000.0) for one in bundle.series()),
            window=bundle.window,
            attachments=_laid_out(bundle, Path(folder)),
            name=bundle.name,
            kind="bundle",
        )
        return _gathered(source)


def case_at(path: Path) -> Case:
    """The case of a bundle's folder, .zip or .tar.gz."""
    with BundleSource(path) as source:
        return _gathered(source)


def description_at(path: Path) -> dict[str, Any]:
    """bundle.json of a bundle, label included: for scoring, never for judging.

    Raises:
        BundleUnreadable: it is damaged, or holds no bundle.json.
    """
    try:
        with _described(path) as data:
            found = json.loads(data)
    except (OSError, EOFError, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise BundleUnreadable(f"{path}: {error}", hint="give a bundle's folder, .zip or .tar.gz") from None
    return dict(found)


def _gathered(source: Source) -> Case:
    return gather([source], Question(now=NOW))


@contextmanager
def _described(path: Path) -> Iterator[bytes]:
    if path.is_dir():
        yield (path / "bundle.json").read_bytes()
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            yield archive.read(_member(archive.namelist(), path))
    else:
        with tarfile.open(path, "r:*") as archive:
            member = archive.extractfile(_member(archive.getnames(), path))
            assert member is not None
            yield member.read()


def _member(names: list[str], path: Path) -> str:
    found = [name for name in names if Path(name).name == "bundle.json"]
    if not found:
        raise BundleUnreadable(f"{path} holds no bundle.json", hint="is it a bundle?")
    return min(found, key=len)


def _laid_out(bundle: Bundle, folder: Path) -> Attachments:
    if bundle.requests:
        requests = folder / "requests" / "requests.jsonl"
        requests.parent.mkdir()
        requests.write_bytes(msgspec.json.Encoder().encode_lines(bundle.requests))
    for name, data in bundle.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return Attachments(
        requests=_under(folder / "requests", ".jsonl"),
        traces=_under(folder / "traces", ".jsonl"),
        logs=_under(folder / "logs", ".log"),
        events=_under(folder, "events.jsonl"),
    )


def _under(folder: Path, ending: str) -> tuple[Path, ...]:
    if not folder.is_dir():
        return ()
    return tuple(
        path for path in sorted(folder.iterdir())
        if path.is_file() and path.name.removesuffix(".gz").endswith(ending)
    )  # fmt: skip
