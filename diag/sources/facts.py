"""Facts from info metrics: what was configured, seen from when to when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from diag.engines.registry import Engine, canonical
from diag.model import Fact

__all__ = ["Sighting", "facts_from", "keep_labels", "numbers_from"]

_SWITCHES = {"true": "on", "false": "off"}
_UNKNOWN = ("", "none", "null")
_KEPT = ("instance", "pod", "node", "namespace")


@dataclass(frozen=True, slots=True)
class Sighting:
    """One label set of an info metric, with its first and last sample (unix seconds, None unknown)."""

    labels: Mapping[str, str]
    first: float | None
    last: float | None


def keep_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that say whose fact it is."""
    return {name: labels[name] for name in _KEPT if labels.get(name)}


def facts_from(engine: Engine, sightings: Iterable[Sighting]) -> tuple[Fact, ...]:
    """One fact for each name, thing and value; equal values that follow one another are one fact."""
    found: list[Fact] = []
    for seen in sorted(sightings, key=lambda one: (one.first or 0.0, sorted(one.labels.items()))):
        for name, value in _values(engine, seen.labels).items():
            fact = Fact(name, value, keep_labels(seen.labels), engine.name, seen.first, seen.last)
            _add(found, fact)
    return tuple(sorted(found, key=lambda fact: (fact.name, sorted(fact.labels.items()), fact.since or 0.0)))


def numbers_from(
    engine: Engine, name: str, rows: Iterable[tuple[Mapping[str, str], float]]
) -> tuple[Fact, ...]:
    """Facts told as the value of a gauge, by its labels and last value; when they began is not known."""
    return tuple(
        Fact(name, f"{value:.10g}", keep_labels(canonical(engine, labels)), engine.name)
        for labels, value in rows
        if math.isfinite(value)
    )


def _add(found: list[Fact], fact: Fact) -> None:
    for index in range(len(found) - 1, -1, -1):
        other = found[index]
        if other.name == fact.name and other.labels == fact.labels:
            if other.value != fact.value:
                break
            until = None if fact.until is None or other.until is None else max(fact.until, other.until)
            found[index] = Fact(fact.name, fact.value, fact.labels, fact.source, other.since, until)
            return
    found.append(fact)


def _values(engine: Engine, labels: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, label in engine.facts.items():
        value = labels.get(label, "")
        if value.lower() not in _UNKNOWN:
            values[name] = _SWITCHES.get(value.lower(), value)
    blocks, size = values.get("kv_blocks", ""), values.get("block_size_tokens", "")
    if "kv_capacity_tokens" not in values and blocks.isdigit() and size.isdigit():
        values["kv_capacity_tokens"] = str(int(blocks) * int(size))
    config = {k: v for k, v in labels.items() if k not in (*_KEPT, "__name__", "job", "engine")}
    if config:
        values["cache_config"] = " ".join(f"{name}={value}" for name, value in sorted(config.items()))
    return values
