"""Alertmanager's webhook, version 4: what is taken from it.

Source: Alertmanager's notification data structure (prometheus.io/docs/alerting/latest/configuration).
Grafana sends a superset; what is not named here is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from diag.errors import DiagError

__all__ = ["Alert", "BadBody", "parsed"]

_MOST_ALERTS = 2000
_LONGEST_LABEL = 4096


class BadBody(DiagError):
    """What was posted is no webhook of version 4."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. ``starts_at``: unix seconds; ``ends_at``: None while it fires."""

    fingerprint: str
    starts_at: float
    ends_at: float | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def firing(self) -> bool:
        """Whether it has not ended."""
        return self.ends_at is None

    @property
    def name(self) -> str:
        """The rule's name; empty where the sender has none."""
        return self.labels.get("alertname", "")


class _Posted(msgspec.Struct):
    status: str
    startsAt: datetime
    fingerprint: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    endsAt: datetime | None = None


class _Body(msgspec.Struct):
    alerts: list[_Posted]
    version: str = "4"


def parsed(body: bytes) -> list[Alert]:
    """The alerts in ``body``; ``BadBody`` when it is none, or holds more than anybody would send."""
    try:
        posted = msgspec.json.decode(body, type=_Body)
    except msgspec.MsgspecError as error:
        raise BadBody(f"not an Alertmanager webhook: {error}", hint="send webhook version 4") from error
    if posted.version != "4":
        raise BadBody(f"webhook version {posted.version} is unknown", hint="send version 4")
    if len(posted.alerts) > _MOST_ALERTS:
        raise BadBody(f"{len(posted.alerts)} alerts at once", hint=f"group into at most {_MOST_ALERTS}")
    return [_alert(one) for one in posted.alerts]


def _alert(one: _Posted) -> Alert:
    if not one.fingerprint:
        raise BadBody("an alert without fingerprint", hint="send webhook version 4")
    ended = None
    # A firing alert may bear the time at which it would run out; year 1 means not at all.
    if one.status == "resolved":
        ended = _unix(one.endsAt) if one.endsAt is not None and one.endsAt.year > 1 else _unix(one.startsAt)
    return Alert(one.fingerprint, _unix(one.startsAt), ended, _short(one.labels), _short(one.annotations))


def _unix(moment: datetime) -> float:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(moment.timestamp(), 0.0) if moment.year > 1 else 0.0


def _short(labels: Mapping[str, str]) -> dict[str, str]:
    return {k[:_LONGEST_LABEL]: v[:_LONGEST_LABEL] for k, v in labels.items()}
