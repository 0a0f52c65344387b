"""The committed rule files as Prometheus reads them: nothing here knows how they were generated."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CHECKOUT", "RULES", "Group", "Rule", "alerts", "groups", "recordings", "seconds", "written"]

CHECKOUT = Path(__file__).resolve().parents[2]
RULES = CHECKOUT / "rules"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_PART = re.compile(r"(\d+)(ms|[smhdwy])")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: an alert when ``alert`` is not empty, else a recording called ``record``."""

    file: Path
    group: str
    expr: str
    alert: str
    record: str
    for_seconds: float
    keep_firing_seconds: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Group:
    """One group of a file, its rules in order."""

    file: Path
    name: str
    interval_seconds: float
    rules: tuple[Rule, ...]


def seconds(text: str | int | None) -> float:
    """``1h30m`` as Prometheus reads it; nothing and 0 are 0."""
    whole = str(text or "0")
    if whole == "0":
        return 0.0
    parts = _PART.findall(whole)
    assert "".join(number + unit for number, unit in parts) == whole, f"{text!r} is no duration"
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


@cache
def groups() -> tuple[Group, ...]:
    """Every group below rules/engines and rules/alerts, in the order of the files."""
    files = sorted([*(RULES / "engines").glob("*.yml"), *(RULES / "alerts").glob("*.yml")])
    assert files, f"no rule file below {RULES}"
    return tuple(group for file in files for group in read(file))


def read(file: Path) -> Iterator[Group]:
    """The groups of one rule file."""
    for group in _content(file.read_text(encoding="utf-8"))["groups"]:
        rules = tuple(_rule(file, group["name"], rule) for rule in group["rules"])
        yield Group(file, group["name"], seconds(group.get("interval", "1m")), rules)


@cache
def _content(text: str) -> Any:
    return yaml.load(text, Loader=yaml.CSafeLoader)


def alerts() -> tuple[Rule, ...]:
    """Every alert."""
    return tuple(rule for group in groups() for rule in group.rules if rule.alert)


def recordings() -> tuple[Rule, ...]:
    """Every recording."""
    return tuple(rule for group in groups() for rule in group.rules if rule.record)


def written(chosen: Sequence[Rule], *, interval: str) -> str:
    """A rule file of ``chosen``, one group, evaluated every ``interval``."""
    rules: list[dict[str, Any]] = []
    for rule in chosen:
        one: dict[str, Any] = {"alert": rule.alert} if rule.alert else {"record": rule.record}
        one["expr"] = rule.expr
        if rule.for_seconds:
            one["for"] = f"{rule.for_seconds:.0f}s"
        if rule.keep_firing_seconds:
            one["keep_firing_for"] = f"{rule.keep_firing_seconds:.0f}s"
        if rule.labels:
            one["labels"] = dict(rule.labels)
        if rule.annotations:
            one["annotations"] = dict(rule.annotations)
        rules.append(one)
    return yaml.safe_dump(
        {"groups": [{"name": "chosen", "interval": interval, "rules": rules}]}, sort_keys=False, width=1000
    )


def _rule(file: Path, group: str, rule: Mapping[str, Any]) -> Rule:
    return Rule(
        file=file,
        group=group,
        expr=str(rule["expr"]).strip(),
        alert=rule.get("alert", ""),
        record=rule.get("record", ""),
        for_seconds=seconds(rule.get("for")),
        keep_firing_seconds=seconds(rule.get("keep_firing_for")),
        labels=rule.get("labels") or {},
        annotations=rule.get("annotations") or {},
    )
