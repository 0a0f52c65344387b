"""The incidents that ship with the package: recordings, and recordings with simulated parts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path

from diag.errors import UsageError

__all__ = ["Demo", "demo_named", "demos"]


@dataclass(frozen=True, slots=True)
class Demo:
    """One shipped incident. ``file`` is its archive; a simulated one is made on the spot."""

    name: str
    text: str
    file: str
    simulated: bool

    @property
    def banner(self) -> str:
        """What is being triaged, in one line that never passes a made-up part for real."""
        kind = "Simulated series on a recorded incident" if self.simulated else "Recorded incident"
        return f"{kind}: {self.text}"

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """The path of its bundle while the block runs."""
        if not self.simulated:
            with as_file(_folder() / self.file) as path:
                yield path
            return
        from diag.simulate import write_overlaid

        with tempfile.TemporaryDirectory(prefix="diag-demo-") as folder:
            yield write_overlaid(self.name, Path(folder) / self.name)


def demos() -> tuple[Demo, ...]:
    """All of them, recordings first."""
    from diag.simulate import OVERLAID

    simulated = (Demo(one.name, one.text, "", True) for one in OVERLAID.values())
    return (*_recorded(), *simulated)


def demo_named(name: str) -> Demo:
    """The incident ``name``; ``UsageError`` when there is none."""
    recorded = next((one for one in _recorded() if one.name == name), None)
    found = recorded or next((one for one in demos() if one.name == name), None)
    if found is None:
        raise UsageError(f"no shipped incident is called {name!r}", hint="`diag demo --list` shows them")
    return found


def _recorded() -> tuple[Demo, ...]:
    import tomllib

    index = tomllib.loads((_folder() / "index.toml").read_text(encoding="utf-8"))
    return tuple(Demo(one["name"], one["description"], one["file"], False) for one in index["incident"])


def _folder() -> Traversable:
    return files("diag") / "_shipped" / "incidents"
