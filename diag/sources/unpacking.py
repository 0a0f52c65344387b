"""Unpack a bundle's archive into a folder that is deleted afterwards, trusting nothing in it."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from diag.errors import BundleUnreadable

__all__ = ["LARGEST_BYTES", "bundle_root", "unpacked"]

LARGEST_BYTES = 16 * 2**30
_MOST_MEMBERS = 20_000
_BLOCK_BYTES = 2**20


def unpacked(archive: Path, *, largest_bytes: int = LARGEST_BYTES) -> Path:
    """Extract ``archive`` (.zip, .tar.gz, .tgz, .tar) into a new temporary folder and return it.

    ``BundleUnreadable`` for a damaged archive, a member outside the folder, a link, too many
    members, or more than ``largest_bytes`` in all; the folder is gone then.
    """
    into = Path(tempfile.mkdtemp(prefix="diag-bundle-"))
    try:
        with archive.open("rb") as file:
            members = _zip_members(archive) if zipfile.is_zipfile(file) else _tar_members(archive)
            _extract(archive, members, into, largest_bytes)
    except (
        EOFError, OSError, zlib.error, tarfile.TarError, zipfile.BadZipFile,
        NotImplementedError, RuntimeError, ValueError,
    ) as error:  # fmt: skip
        shutil.rmtree(into, ignore_errors=True)
        why = (
            "ends too early"
            if isinstance(error, EOFError)
            else str(error).splitlines()[0]
            if str(error)
            else "?"
        )
        raise BundleUnreadable(
            f"{archive} is no readable .zip or .tar.gz ({why})", hint="copy or record it again"
        ) from None
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise
    return into


def bundle_root(folder: Path, ref: str) -> Path:
    """The folder that holds bundle.json: ``folder``, or its only sub-folder."""
    if (folder / "bundle.json").is_file():
        return folder
    inner = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    with_description = [path for path in inner if (path / "bundle.json").is_file()]
    if len(with_description) == 1:
        return with_description[0]
    raise BundleUnreadable(f"{ref} holds no bundle.json", hint="is it a bundle? `diag record` writes one")


def _extract(archive: Path, members: Iterator[tuple[str, IO[bytes]]], into: Path, largest_bytes: int) -> None:
    left = largest_bytes
    for number, (name, stream) in enumerate(members):
        if number >= _MOST_MEMBERS:
            raise BundleUnreadable(
                f"{archive} holds more than {_MOST_MEMBERS} files", hint="that is no bundle"
            )
        target = into / _safe(archive, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as out:
            while block := stream.read(_BLOCK_BYTES):
                left -= len(block)
                if left < 0:
                    raise BundleUnreadable(
                        f"{archive} unpacks to more than {largest_bytes / 2**30:g} GiB",
                        hint="record a shorter window, or unpack it yourself and give the folder",
                    )
                out.write(block)


def _safe(archive: Path, name: str) -> Path:
    pure = PurePosixPath(name.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts or ":" in (pure.parts or ("",))[0] or "\0" in name:
        raise BundleUnreadable(
            f"{archive} tries to write outside its folder ({name!r})", hint="don't trust where it came from"
        )
    return Path(*pure.parts)


def _link(archive: Path, name: str) -> BundleUnreadable:
    return BundleUnreadable(f"{archive} holds a link ({name!r})", hint="a bundle holds only files")


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            is_link = (info.external_attr >> 16) & 0o170000 == 0o120000
            if is_link:
                raise _link(archive, info.filename)
            _safe(archive, info.filename)
            if not info.is_dir():
                with opened.open(info) as stream:
                    yield info.filename, stream


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive, "r:*") as opened:
        for info in opened:
            _safe(archive, info.name)
            if info.isdir():
                continue
            if not info.isfile():
                raise _link(archive, info.name)
            stream = opened.extractfile(info)
            if stream is not None:
                yield info.name, stream
