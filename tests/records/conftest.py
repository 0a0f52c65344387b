"""Small files and windows for the readers' tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from diag.model import Window

WriteLines = Callable[..., Path]


@pytest.fixture
def write_lines(tmp_path: Path) -> WriteLines:
    """``write_lines(name, items)``: objects become JSON lines, texts stay as they are."""

    def write(name: str, items: Iterable[object]) -> Path:
        path = tmp_path / name
        lines = (item if isinstance(item, str) else json.dumps(item) for item in items)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


@pytest.fixture
def window_of(incidents: Path) -> Callable[[str], Window]:
    """The window of a recording."""

    def window(name: str) -> Window:
        held = json.loads((incidents / name / "bundle.json").read_text())["window"]
        return Window(held["from"], held["to"])

    return window
