"""The right answer of a case, read from a bundle's label after triage has answered without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["Kind", "Label", "label_of"]

UNKNOWN = "unknown"


class Kind(StrEnum):
    """What sort of case it is; each is scored by its own questions."""

    CAUSE = "cause"
    DOUBLE = "double"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"


class Label(msgspec.Struct, frozen=True):
    """``leading`` None: nothing is wrong; "unknown": nothing of ours. ``accept``: every leading answer that
    is right, ``leading`` among them. ``onset``: when the cause begins, ``felt_onset``: when users begin to
    feel it (unix seconds; None when unknown). ``scope`` by plural kind: instances, gpus, tenants, nodes,
    sessions. ``gpu_names``: other names of a GPU → its name in ``scope`` ("node-0/2")."""

    kind: Kind
    causes: tuple[str, ...] = ()
    leading: str | None = None
    accept: tuple[str | None, ...] = ()
    must_not: tuple[str, ...] = ()
    scope: dict[str, tuple[str, ...]] = {}
    onset: float | None = None
    felt_onset: float | None = None
    severity: float | None = None
    scenario: str = ""
    gpu_names: dict[str, str] = {}


_PLURAL = {
    "instance": "instances", "node": "nodes", "gpu": "gpus", "tenant": "tenants", "session": "sessions",
    "target": "targets",
}  # fmt: skip


def label_of(raw: Mapping[str, Any]) -> Label:
    """The ``label`` of bundle.json, as recordings, reconstructions and the simulator write it.

    Two causes are a double only where the label says so (``case: double``): a cause and the consequence that
    it brings about stand side by side in labels, too."""
    causes = tuple(raw.get("causes") or ())
    leading = raw.get("leading")
    if leading is None and causes and "leading" not in raw:
        leading = causes[0]
    accept = tuple(raw.get("accept") or ())
    return Label(
        kind=_kind(raw, causes, leading),
        causes=causes,
        leading=leading,
        accept=tuple(dict.fromkeys((leading, *accept))),
        must_not=tuple(raw.get("must_not") or ()),
        scope={_PLURAL.get(name, name): _several(who) for name, who in (raw.get("scope") or {}).items()},
        onset=raw.get("onset"),
        felt_onset=raw.get("felt_onset"),
        severity=raw.get("severity"),
        scenario=str(raw.get("scenario") or ""),
        gpu_names=dict(raw.get("gpu_names") or {}),
    )


def _kind(raw: Mapping[str, Any], causes: Sequence[str], leading: str | None) -> Kind:
    said = raw.get("case")
    if said in list(Kind):
        return Kind(said)
    if leading == UNKNOWN:
        return Kind.UNKNOWN
    return Kind.CAUSE if causes else Kind.HEALTHY


def _several(who: str | Sequence[str]) -> tuple[str, ...]:
    return (who,) if isinstance(who, str) else tuple(who)
