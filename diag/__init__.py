"""Name the root cause when a self-hosted LLM service gets slow and no alert says why.

import diag

verdict = diag.triage("https://prometheus.example")     # or a /metrics page, or a bundle
print(diag.render(verdict, "markdown"))
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "Assessment",
    "DiagError",
    "Evidence",
    "Finding",
    "Series",
    "Verdict",
    "Window",
    "connect",
    "open_bundle",
    "render",
    "triage",
]

_HOMES = {
    "Assessment": "diag.model",
    "DiagError": "diag.errors",
    "Evidence": "diag.model",
    "Finding": "diag.model",
    "Series": "diag.model",
    "Verdict": "diag.model",
    "Window": "diag.model",
    "connect": "diag.api",
    "open_bundle": "diag.api",
    "render": "diag.api",
    "triage": "diag.api",
}


def __getattr__(name: str) -> Any:
    """The public names are fetched on first use: importing ``diag`` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'diag' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Importing the floor ``diag.triage`` must not hide the call ``diag.triage(...)``: of the two
    things by that name the package shows the call, and imports still find the floor."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
