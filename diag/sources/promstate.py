"""What a Prometheus says of itself: which metrics it has, which rules it loaded, its external labels.

Only the list of names is common to all compatible stores. The rest is ``None`` where a store has no
such door (VictoriaMetrics keeps rules in vmalert, Thanos and Mimir show no configuration): not told is
not the same as none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from diag.errors import NotPrometheus, QueryRejected, SourceRefused
from diag.model import Window
from diag.sources.access import Client

__all__ = ["LoadedRule", "StoreState"]


@dataclass(frozen=True, slots=True)
class LoadedRule:
    """One rule as the store evaluates it. ``error`` is what its last evaluation said, if it failed."""

    name: str
    alerting: bool
    query: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


class _Rule(msgspec.Struct):
    name: str
    type: str = ""
    query: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    lastError: str = ""


class _Group(msgspec.Struct):
    rules: list[_Rule] = []


class _Groups(msgspec.Struct):
    groups: list[_Group] = []


class _Common(msgspec.Struct):
    external_labels: dict[str, Any] | None = None


class _Configuration(msgspec.Struct):
    common: _Common | None = msgspec.field(default=None, name="global")


class StoreState:
    """The store behind ``client``, asked about itself."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def names(self, window: Window) -> frozenset[str]:
        """Every metric's name in ``window``, and perhaps some from just outside it: stores answer by the
        block. Raises the ``SourceError`` leaves."""
        params = {"start": f"{window.start:.3f}", "end": f"{window.end:.3f}"}
        data = self._data("/api/v1/label/__name__/values", params)
        if not isinstance(data, list):
            raise NotPrometheus(
                f"{self._client.url} does not list its metrics", hint="is a proxy in between?"
            )
        return frozenset(str(name) for name in data)

    def rules(self) -> tuple[LoadedRule, ...] | None:
        """The rules it has loaded; None where it does not tell."""
        data = self._optional("/api/v1/rules")
        try:
            groups = msgspec.convert(data, _Groups).groups if data is not None else None
        except msgspec.ValidationError:
            return None
        # An empty list is also what a store answers that knows of no rules at all.
        if groups is None or (not groups and self.external_labels() is None):
            return None
        return tuple(
            LoadedRule(
                rule.name, rule.type == "alerting", rule.query, rule.labels, rule.annotations, rule.lastError
            )
            for group in groups
            for rule in group.rules
        )

    def external_labels(self) -> dict[str, str] | None:
        """The labels that its alerts' templates can read; None where it shows no configuration."""
        data = self._optional("/api/v1/status/config")
        text = data.get("yaml") if isinstance(data, dict) else None
        if (
            not isinstance(text, str) or not text.strip()
        ):  # VictoriaMetrics has the door and nothing behind it
            return None
        import yaml

        try:
            found = msgspec.convert(yaml.safe_load(text) or {}, _Configuration)
        except (yaml.YAMLError, msgspec.ValidationError):
            return None
        labels = found.common.external_labels if found.common else None
        return {name: str(value) for name, value in (labels or {}).items()}

    def _optional(self, path: str) -> Any:
        try:
            return self._data(path, {})
        except (NotPrometheus, QueryRejected, SourceRefused):
            return None

    def _data(self, path: str, params: Mapping[str, str]) -> Any:
        """The ``data`` of an answer."""
        reply = self._client.get(path, params)
        try:
            answer = msgspec.json.decode(reply.content)
        except msgspec.MsgspecError:
            answer = None
        if not isinstance(answer, dict) or "status" not in answer:
            raise NotPrometheus(
                f"{self._client.url}{path} answers with something that is no Prometheus answer",
                hint="is it behind a log-in, or does a path prefix lack, as /prometheus?",
            )
        if answer["status"] != "success":
            said = " ".join(str(answer.get("error", "")).split())[:200]
            raise QueryRejected(f"{self._client.url} refused {path}: {said or 'no reason given'}")
        return answer.get("data")
