"""Writes what ships into a folder, and leaves alone what it did not write.

A file ``.diag-assets.json`` in the folder remembers what was written. A file that is still as it was
written is ours: a later release may renew it or take it away (a rule file that lived on under an old
name would double its alerts). Everything else there is somebody's work.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from diag import __version__
from diag.assets.inventory import Asset
from diag.errors import DiagError

__all__ = ["MEMORY", "Exported", "export"]

MEMORY = ".diag-assets.json"
"""Name of the file that remembers what was written."""

_SCHEMA = "diag.assets/1"


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export did: paths below the folder. ``left`` are ours of an earlier release that somebody
    edited and that no longer ship."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    left: tuple[str, ...]


def export(assets: Sequence[Asset], folder: Path, *, force: bool = False) -> Exported:
    """Write ``assets`` below ``folder``, which is made if need be.

    Nothing at all is written when a file of somebody else stands in the way, unless ``force``.
    Raises ``DiagError`` for that, and for a folder that cannot be written."""
    contents = {one.path: one.file.read_bytes() for one in assets}
    try:
        before = _remembered(folder)
        foreign = [
            path for path, data in contents.items() if _is_foreign(folder / path, data, before.get(path))
        ]
        if foreign and not force:
            raise _in_the_way(folder, foreign)
        return _write(contents, folder, before)
    except OSError as error:
        where = error.filename or folder
        raise DiagError(
            f"cannot write {where}: {error.strerror or error}", hint="choose another folder"
        ) from None


def _write(contents: Mapping[str, bytes], folder: Path, before: Mapping[str, str]) -> Exported:
    folder.mkdir(parents=True, exist_ok=True)
    written = [path for path, data in contents.items() if _current(folder / path) != _digest(data)]
    for path in written:
        _place(folder / path, contents[path])
    gone = sorted(path for path in set(before) - set(contents) if _current(folder / path) is not None)
    removed = [path for path in gone if _current(folder / path) == before[path]]
    for path in removed:
        (folder / path).unlink()
    text = json.dumps(
        {"schema": _SCHEMA, "version": __version__, "files": {p: _digest(d) for p, d in contents.items()}},
        indent=1,
    )
    _place(folder / MEMORY, (text + "\n").encode())
    return Exported(
        tuple(written),
        tuple(path for path in contents if path not in written),
        tuple(removed),
        tuple(path for path in gone if path not in removed),
    )


def _remembered(folder: Path) -> dict[str, str]:
    """What was written here before; nothing where the memory is not as we wrote it."""
    try:
        document = json.loads((folder / MEMORY).read_bytes())
        files = document["files"] if document["schema"] == _SCHEMA else {}
        return {str(path): str(digest) for path, digest in files.items() if _stays_inside(str(path))}
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _stays_inside(path: str) -> bool:
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts


def _is_foreign(path: Path, data: bytes, before: str | None) -> bool:
    current = _current(path)
    if current is None:
        return False
    return path.is_symlink() or current not in (_digest(data), before)


def _current(path: Path) -> str | None:
    """Digest of what stands at ``path``; empty for what is no file, None for nothing."""
    if path.is_file():
        return _digest(path.read_bytes())
    return "" if path.exists() or path.is_symlink() else None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _place(path: Path, data: bytes) -> None:
    """Whole or not at all: a store may reload while we write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
        os.chmod(name, 0o644)  # a store runs as another user; mkstemp lets nobody else read
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _in_the_way(folder: Path, foreign: Sequence[str]) -> DiagError:
    more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
    return DiagError(
        f"{folder / foreign[0]}{more} would be overwritten and did not come from here unchanged",
        hint="nothing was written; choose another folder, or --force",
    )
