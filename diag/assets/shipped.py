"""Finds the files that ship with the package: rules, dashboards, runbooks, deployment examples.

They live where operators look for them, at the top of the checkout; the wheel carries copies under
``diag/_shipped``. The package is looked at first and the checkout second, so that an installed ``diag``
never reads files of a folder it happens to lie in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from diag.errors import DiagError

__all__ = ["FOLDERS", "File", "folder", "read_text", "shipped_files"]

FOLDERS = ("rules", "dashboards", "runbooks", "deploy")
"""What ships as files, by the folder it has in the checkout, in the wheel and in an export."""

# Builders and the compose example build from a checkout, and who has one needs no copy.
_NOT_SHIPPED = ("dashboards/src", "deploy/README.md", "deploy/compose", "__pycache__")


@dataclass(frozen=True, slots=True)
class File:
    """One shipped file: ``path`` as in the checkout (``rules/alerts/slo.yml``) and where it lies."""

    path: str
    at: Traversable

    def read_bytes(self) -> bytes:
        """Its content."""
        return self.at.read_bytes()


def folder(name: str) -> Traversable:
    """The folder ``name`` of ``FOLDERS``; ``DiagError`` where neither package nor checkout has it."""
    package = files("diag")
    inside = package / "_shipped" / name
    if inside.is_dir():
        return inside
    checkout = Path(str(package)).parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    raise DiagError(
        f"this installation of diag has no {name}", hint="install the wheel, or run from a checkout"
    )


def shipped_files(name: str) -> tuple[File, ...]:
    """Every file of the folder ``name``, by path."""
    return tuple(sorted(_walk(folder(name), name), key=lambda file: file.path))


def read_text(path: str) -> str:
    """The text of ``runbooks/context_growth.md`` and its like; ``DiagError`` where there is none."""
    # Looked up in the list, not joined as a path: what a caller was handed must not lead elsewhere.
    name = path.partition("/")[0]
    found = next((one for one in shipped_files(name) if one.path == path), None) if name in FOLDERS else None
    if found is None:
        raise DiagError(f"no {path} ships with diag", hint="`diag assets list` shows what does")
    return found.at.read_text(encoding="utf-8")


def _walk(place: Traversable, path: str) -> Iterator[File]:
    for entry in place.iterdir():
        below = f"{path}/{entry.name}"
        if entry.name.startswith(".") or entry.name in _NOT_SHIPPED or below in _NOT_SHIPPED:
            continue
        if entry.is_dir():
            yield from _walk(entry, below)
        else:
            yield File(below, entry)
