"""Answers as text: one output a file, all of them read a verdict and nothing else.

``RENDERERS`` is the table of contents. A new output is a module with
``render(verdict, options) -> str`` and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING

from diag.errors import UsageError

if TYPE_CHECKING:
    from diag.model import Verdict

__all__ = ["RENDERERS", "RenderOptions", "Renderer", "format_for", "load", "render"]


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """How an answer is laid out. ``width`` in columns; ``top`` limits the causes told in full."""

    width: int = 100
    color: bool = False
    top: int = 3


@dataclass(frozen=True, slots=True)
class Renderer:
    """One output: where it lives and the file endings that ask for it."""

    module: str
    suffixes: tuple[str, ...]


# Modules are named, not imported, so that asking for one output never pays for another.
RENDERERS: Mapping[str, Renderer] = {
    "console": Renderer("diag.renderers.console", (".txt",)),
    "json": Renderer("diag.renderers.json", (".json",)),
    "markdown": Renderer("diag.renderers.markdown", (".md", ".markdown")),
    "html": Renderer("diag.renderers.html", (".html", ".htm")),
}


def render(verdict: Verdict, format: str = "console", options: RenderOptions | None = None) -> str:
    """``verdict`` as text that ends in a newline; ``UsageError`` for an unknown ``format``."""
    module = import_module(_renderer(format).module)
    text: str = module.render(verdict, options or RenderOptions())
    return text


def load(text: str | bytes) -> Verdict:
    """The verdict saved as JSON in ``text``; ``DiagError`` when it is none, or a newer schema."""
    from diag.renderers.json import load as load_json

    return load_json(text)


def format_for(path: PurePath) -> str | None:
    """The output that the ending of ``path`` asks for, None when it says nothing."""
    suffix = path.suffix.lower()
    return next((name for name, entry in RENDERERS.items() if suffix in entry.suffixes), None)


def _renderer(format: str) -> Renderer:
    try:
        return RENDERERS[format]
    except KeyError:
        raise UsageError(f"unknown format {format!r}", hint=f"choose {', '.join(RENDERERS)}") from None
