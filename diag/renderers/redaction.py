"""Names out of a verdict before it leaves the house: hosts, tenants, sessions become host-1, tenant-2 …

One name always becomes the same stand-in, so that a reader can still follow who is who. Names are known from
the verdict's own lists and found wherever they occur in its texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from diag.errors import UsageError
from diag.model import Verdict
from diag.renderers import RenderOptions
from diag.renderers.json import load, render

__all__ = ["KINDS", "redacted"]

KINDS: Mapping[str, tuple[str, ...]] = {
    "hosts": (
        "instances", "instance", "nodes", "node", "pods", "pod", "targets", "target", "gpus", "gpu",
        "namespace",
    ),
    "tenants": ("tenants", "tenant"),
    "sessions": ("sessions", "session"),
}  # fmt: skip
"""What ``--redact`` takes -> the label and scope names that hold such names."""

_STAND_INS = {"hosts": "host", "tenants": "tenant", "sessions": "session"}
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b(?::\d+)?")
_URL = re.compile(r"(https?://)[^\s/]+")
_SHORTEST = 2


def redacted(verdict: Verdict, kinds: Sequence[str]) -> Verdict:
    """``verdict`` without the names of ``kinds``; with hosts go addresses, URLs' hosts and source paths.

    ``UsageError`` for a kind that is none."""
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"cannot redact {kind!r}", hint=f"choose from {', '.join(KINDS)}")
    plain = msgspec.json.decode(render(verdict, RenderOptions()))
    stand_ins = _stand_ins(plain, kinds)
    told = _Telling(stand_ins, hosts="hosts" in kinds)
    hidden = load(msgspec.json.encode(told.of(plain)))
    if "hosts" not in kinds:
        return hidden
    source = tuple(replace(one, ref=f"{one.kind} (redacted)") for one in hidden.source)
    return replace(hidden, source=source)


def _stand_ins(plain: Any, kinds: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for kind in kinds:
        names = dict.fromkeys(
            name for name in _named(plain, frozenset(KINDS[kind])) if len(name) >= _SHORTEST
        )
        for number, name in enumerate(names, 1):
            found.setdefault(name, f"{_STAND_INS[kind]}-{number}")
        if kind == "hosts":
            for name in names:
                host = name.split(":")[0].split("/")[0]
                if len(host) >= _SHORTEST:
                    found.setdefault(host, found[name])
    return found


def _named(part: Any, keys: frozenset[str]) -> Iterator[str]:
    """Every name under one of ``keys``, in a scope, labels or the list of names."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in keys:
                yield from (
                    one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)
                )
            else:
                yield from _named(value, keys)
    elif isinstance(part, list):
        for one in part:
            yield from _named(one, keys)


_FIXED = frozenset(
    {
        "schema", "version", "id", "signal", "state", "stance", "unit", "explained_by", "runbook", "x_unit",
        "kind", "alert", "producer", "promql",
    }
)  # fmt: skip
"""Keys whose values are fixed words."""


class _Telling:
    """Rewrites every text of a verdict but its fixed words."""

    def __init__(self, stand_ins: Mapping[str, str], *, hosts: bool) -> None:
        longest_first = sorted(stand_ins, key=len, reverse=True)
        words = "|".join(re.escape(name) for name in longest_first)
        self._names = re.compile(rf"(?<![\w.-])(?:{words})(?![\w-])") if words else None
        self._stand_ins = stand_ins
        self._hosts = hosts

    def of(self, part: Any) -> Any:
        """``part`` of decoded JSON, names replaced."""
        if isinstance(part, dict):
            return {k: v if k in _FIXED else self.of(v) for k, v in part.items()}
        if isinstance(part, list):
            return [self.of(one) for one in part]
        return self._text(part) if isinstance(part, str) else part

    def _text(self, text: str) -> str:
        if self._names is not None:
            text = self._names.sub(lambda found: self._stand_ins[found.group()], text)
        if self._hosts:
            text = _ADDRESS.sub("address", _URL.sub(r"\1host", text))
        return text
