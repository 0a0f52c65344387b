"""Which rules and panels would be blind on a store, and why; which rules it has loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from diag.assets.holdings import Holdings
from diag.assets.inventory import dashboards
from diag.assets.queries import Selection, inlined, lacking, parsed, selections, text, unconditional
from diag.assets.reasons import TRANSIENT, Reason, absent, reasons, stuck
from diag.assets.rules.catalogue import FILES
from diag.assets.rules.links import DEFAULT_LINKS
from diag.assets.rules.model import Alert, Needs, Recording
from diag.sources.promstate import LoadedRule

__all__ = ["LABELS", "Checked", "Expectation", "Loaded", "Sight", "expectations", "loaded", "sights"]

LABELS = ("llmdiag_url", "grafana_url")
"""External labels that the links in alerts are made of."""

Kind = Literal["alert", "recording", "panel"]
State = Literal["sees", "blind", "waiting", "no_producer"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that is to see something: an alert, a recording, or a panel with its queries. ``home``
    is the rule file's path below ``rules/``, or the dashboard's title."""

    kind: Kind
    name: str
    home: str
    queries: tuple[str, ...]
    producer: str = ""
    needs: Needs = ()


@dataclass(frozen=True, slots=True)
class Sight:
    """What was found out about one of them.

    ``sees``: it has rows to judge or to show. ``blind``: it has none, though who should deliver them is
    there. ``waiting``: nothing is wrong, its input comes with the first event, with a feature, or with
    time. ``no_producer``: nobody who could deliver is scraped. A panel sees if one of its queries does."""

    what: Expectation
    state: State
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """How much of one of our rule files a store evaluates. ``failing`` has what an evaluation said;
    ``other_release`` are alerts whose runbook links are of another release than ours."""

    path: str
    total: int
    missing: tuple[str, ...]
    failing: tuple[tuple[str, str], ...]
    other_release: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """The whole answer. ``loaded`` and ``labels_missing`` are None where the store does not tell."""

    url: str
    start: float
    end: float
    producers: tuple[str, ...]
    sights: tuple[Sight, ...]
    loaded: tuple[Loaded, ...] | None
    labels_missing: tuple[str, ...] | None
    notes: tuple[str, ...] = ()

    def of(self, kind: Kind, *states: State) -> tuple[Sight, ...]:
        """The sights of one kind, in one of ``states`` if any are given."""
        return tuple(
            one for one in self.sights if one.what.kind == kind and (not states or one.state in states)
        )

    def fails(self, on: Literal["blind", "unloaded"]) -> bool:
        """Whether an alert is ``blind``, or one that could see something is not loaded (or nobody
        knows)."""
        if on == "blind":
            return bool(self.of("alert", "blind"))
        if self.loaded is None:
            return True
        missing = {name for file in self.loaded for name in file.missing}
        return any(one.what.name in missing for one in self.of("alert", "sees", "waiting", "blind"))


def expectations() -> tuple[Expectation, ...]:
    """Everything that ships and is to see something, in the order of its files."""
    found: list[Expectation] = []
    for file in FILES:
        found += [
            Expectation(
                "recording",
                one.record,
                file.path,
                (one.expr,),
                one.producer,
                (one.producer,) if one.producer else (),
            )
            for one in file.recordings
        ]
        found += [
            Expectation("alert", one.name, file.path, (one.expr,), needs=one.needs) for one in file.alerts
        ]
    for board in dashboards():
        found += [Expectation("panel", panel.title, board.title, panel.queries) for panel in board.panels]
    # A constant (a line at an alert's threshold) shows always, and nothing of the store.
    read = [replace(one, queries=tuple(q for q in one.queries if selections(parsed(q)))) for one in found]
    return tuple(new if new.queries else old for old, new in zip(found, read, strict=True))


def sights(wanted: Sequence[Expectation], holdings: Holdings) -> tuple[Sight, ...]:
    """What each of ``wanted`` would see of ``holdings``. Raises the ``SourceError`` leaves."""
    recorded = _recorded()
    nodes = {query: _node(one, query) for one in wanted for query in one.queries}
    holdings.look(part for node in nodes.values() for part in selections(node))
    nodes = {query: inlined(node, recorded, holdings.there) for query, node in nodes.items()}
    holdings.look(part for node in nodes.values() for part in selections(node))
    producers = frozenset(holdings.producers())
    hopeful = {query: node for query, node in nodes.items() if not lacking(node, holdings.there)}
    holdings.ask(text(node) for node in hopeful.values())
    return tuple(_sight(one, nodes, holdings, producers) for one in wanted)


def _recorded() -> dict[str, list[Recording]]:
    found: dict[str, list[Recording]] = {}
    for file in FILES:
        for one in file.recordings:
            found.setdefault(one.record, []).append(one)
    return found


def _node(one: Expectation, query: str) -> Any:
    node = parsed(query)
    # A recording or a panel compares to keep sentinels out; only an alert compares to stay silent.
    return unconditional(node) if one.kind == "alert" else node


def _sight(one: Expectation, nodes: dict[str, Any], holdings: Holdings, producers: Collection[str]) -> Sight:
    unmet = [entry.split("|") for entry in one.needs if not set(entry.split("|")) & set(producers)]
    if unmet:
        return Sight(one, "no_producer", tuple(absent(names) for names in unmet))
    found: list[Reason] = []
    for query in one.queries:
        why = _blindness(nodes[query], holdings, producers)
        if not why:
            return Sight(one, "sees")
        found += why
    # An exporter that could be added comes after what is wrong with one that is there.
    told = tuple(sorted(dict.fromkeys(found), key=lambda reason: reason.kind == "producer_absent"))
    kinds = {reason.kind for reason in told}
    if kinds == {"producer_absent"}:
        return Sight(one, "no_producer", told)
    if kinds <= TRANSIENT:
        return Sight(one, "waiting", told)
    return Sight(one, "blind", told)


def _blindness(node: Any, holdings: Holdings, producers: Collection[str]) -> tuple[Reason, ...]:
    missing: tuple[Selection, ...] = lacking(node, holdings.there)
    if missing:
        return reasons(missing, holdings, producers)
    query = text(node)
    answer = holdings.ask([query])[query]
    if answer.refusal:
        return (Reason("refused", query, answer.refusal),)
    return () if answer.rows else (stuck(node, holdings),)


def loaded(rules: Iterable[LoadedRule]) -> tuple[Loaded, ...]:
    """How much of each of our rule files is among ``rules``."""
    alerts: dict[str, LoadedRule] = {}
    recordings: dict[tuple[str, str], LoadedRule] = {}
    for rule in rules:
        if rule.alerting:
            alerts.setdefault(rule.name, rule)
        else:
            recordings.setdefault((rule.name, rule.labels.get("producer", "")), rule)
    found = []
    for file in FILES:
        pairs: list[tuple[Alert | Recording, LoadedRule | None]] = [
            *((one, recordings.get((one.record, one.producer))) for one in file.recordings),
            *((one, alerts.get(one.name)) for one in file.alerts),
        ]
        missing = tuple(_name(one) for one, rule in pairs if rule is None)
        failing = tuple((_name(one), rule.error) for one, rule in pairs if rule is not None and rule.error)
        found.append(Loaded(file.path, len(pairs), missing, failing, tuple(_others(pairs))))
    return tuple(found)


def _others(pairs: Iterable[tuple[Alert | Recording, LoadedRule | None]]) -> Iterator[str]:
    for one, rule in pairs:
        if isinstance(one, Alert) and rule is not None:
            linked = rule.annotations.get("runbook_url", "")
            if not linked.endswith(DEFAULT_LINKS.runbook(one.runbook).rpartition("/")[2]):
                yield one.name


def _name(one: Alert | Recording) -> str:
    return one.name if isinstance(one, Alert) else one.record
