"""Defaults from the environment and from ``diag.toml``: this folder first, then the user's.

Precedence: command line, ``DIAG_PROMETHEUS_URL``, ``./diag.toml``, the user's ``diag.toml``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from diag.errors import UsageError

__all__ = ["Defaults", "read_defaults"]


@dataclass(frozen=True, slots=True)
class Defaults:
    """What ``diag.toml`` may say; the keys are these names. None means not said."""

    sources: tuple[str, ...] = ()
    last: str | None = None
    match: tuple[str, ...] = ()
    format: str | None = None
    top: int | None = None
    requests_map: str | None = None
    requests_preset: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    bearer_token_file: str | None = None
    basic_auth_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    ca_file: str | None = None
    timeout: str | None = None


_LISTS = ("sources", "match")


def read_defaults(folder: Path, environment: Mapping[str, str]) -> Defaults:
    """The defaults that hold in ``folder``; ``UsageError`` for an unknown key or a wrong type."""
    merged: dict[str, Any] = {}
    for path in (_user_folder(environment) / "diag" / "diag.toml", folder / "diag.toml"):
        merged.update(_read(path))
    defaults = Defaults(**merged)
    url = environment.get("DIAG_PROMETHEUS_URL", "").strip()
    return replace(defaults, sources=(url,)) if url else defaults


def _user_folder(environment: Mapping[str, str]) -> Path:
    configured = environment.get("XDG_CONFIG_HOME", "")
    return (
        Path(configured)
        if configured
        else Path(environment.get("HOME") or os.path.expanduser("~")) / ".config"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    known = {entry.name for entry in fields(Defaults)}
    unknown = sorted(set(table) - known)
    if unknown:
        raise UsageError(
            f"{path} has an unknown key {unknown[0]!r}", hint=f"known are {', '.join(sorted(known))}"
        )
    return {key: _checked(path, key, value) for key, value in table.items()}


def _checked(path: Path, key: str, value: object) -> Any:
    if key in _LISTS:
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            return tuple(value)
        raise UsageError(f"{path}: {key} must be a list of strings")
    if key == "headers":
        if isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values()):
            return value
        raise UsageError(f"{path}: headers must be a table of strings")
    if key == "top":
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        raise UsageError(f"{path}: top must be a number above 0")
    if isinstance(value, str):
        return value
    raise UsageError(f"{path}: {key} must be a string")
