"""What ships, in titled sections of two columns and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diag.assets.inventory import KINDS, Asset
from diag.assets.rules.yaml_text import needs_text
from diag.assets.unalerted import WITHOUT_ALERT

__all__ = ["SCHEMA", "Section", "data", "headline", "sections", "unalerted"]

SCHEMA = "diag.assets_list/1"

Section = tuple[str, Sequence[tuple[str, str]]]
"""A title and its rows: what it is about, what is said."""

_TITLES = {"rules": "Rules", "dashboard": "Dashboards", "runbook": "Runbooks", "example": "Examples"}


def headline(assets: Sequence[Asset]) -> str:
    """One line: how much of what."""
    counts = [(sum(one.kind == kind for one in assets), _TITLES[kind].lower()) for kind in KINDS]
    told = ", ".join(
        f"{count} {'files of rules' if what == 'rules' else what}" for count, what in counts if count
    )
    return f"{told}." if told else "Nothing that ships fits."


def sections(assets: Sequence[Asset]) -> Iterator[Section]:
    """A row a file: where an export puts it; what it is and what it needs."""
    for kind in KINDS:
        own = [one for one in assets if one.kind == kind]
        yield _TITLES[kind], [(one.path, _line(one)) for one in own]


def unalerted() -> Section:
    """The hypotheses without an alert of their own, and why."""
    return "Hypotheses without an alert of their own", list(WITHOUT_ALERT.items())


def _line(one: Asset) -> str:
    return f"{one.title}; needs {needs_text(one.needs)}" if one.needs else one.title


def data(assets: Sequence[Asset]) -> dict[str, object]:
    """The list as plain data."""
    rows = [
        {"path": one.path, "kind": one.kind, "title": one.title, "needs": one.needs, "engines": one.engines}
        for one in assets
    ]
    return {"schema": SCHEMA, "assets": rows, "without_alert": dict(WITHOUT_ALERT)}
