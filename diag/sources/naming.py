"""Which metrics matter, and what their labels are called once they are in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from diag.engines import ENGINES
from diag.engines.registry import Absent, Definition, Engine, canonical
from diag.model import Gap, Series
from diag.signals import SIGNALS
from diag.signals.algebra import Select, selects, spellings
from diag.signals.vocabulary import Scope

__all__ = [
    "CPU_METRIC",
    "PAGE_SIGNALS",
    "START_METRIC",
    "canonical_labels",
    "gap",
    "host_of",
    "metric_names",
    "page_metric_names",
    "select_names",
    "serves",
    "sorted_series",
]

CPU_METRIC = "process_cpu_seconds_total"
START_METRIC = "process_start_time_seconds"

# Enough of a serving engine's page to tell a frozen page from an idle one.
PAGE_SIGNALS = (
    "generation_tokens_per_second",
    "prompt_tokens_per_second",
    "http_requests_per_second",
    "running_requests",
    "waiting_requests",
    "kv_cache_usage_ratio",
)


def select_names(select: Select) -> tuple[str, ...]:
    """Every spelling of every name of ``select``."""
    return tuple(spelt for name in select.names for spelt in spellings(name))


@lru_cache(maxsize=1)
def metric_names() -> frozenset[str]:
    """Every metric name that any engine file reads, in every spelling, and those of scraping."""
    names = {"up", CPU_METRIC, START_METRIC}
    for engine in ENGINES:
        names.update(select_names(engine.probe))
        if engine.info is not None:
            names.update(select_names(engine.info))
        names.update(name for one in engine.numbers.values() for name in select_names(one))
        for definition in engine.signals.values():
            if isinstance(definition, Definition):
                names.update(spelt for one in selects(definition.expr) for spelt in select_names(one))
    return frozenset(names)


def serves(engine: Engine) -> bool:
    """Whether ``engine`` is a serving engine rather than an exporter."""
    return isinstance(engine.signals.get("running_requests"), Definition)


def page_metric_names(engine: Engine) -> tuple[str, ...]:
    """The metrics of a serving engine's page that move whenever it works."""
    names: dict[str, None] = {}
    for signal in PAGE_SIGNALS:
        definition = engine.signals.get(signal)
        if isinstance(definition, Definition):
            for one in selects(definition.expr):
                names.update(dict.fromkeys(select_names(one)))
    return tuple(names)


def host_of(address: str) -> str:
    """The host part of ``host:port``, of a URL-like instance, or the name itself."""
    bare = address.split("://", 1)[-1].split("/", 1)[0]
    head, colon, port = bare.rpartition(":")
    if colon and port.isdigit() and (":" not in head or head.startswith("[")):
        bare = head
    return bare.strip("[]")


def canonical_labels(raw: Mapping[str, str], engine: Engine, signal: str) -> dict[str, str]:
    """Labels as the case knows them (see ``diag.engines.canonical``), without ``__name__``.

    A GPU's or a node's series without ``node`` gets the host part of its scrape address.
    """
    labels = canonical(engine, {name: value for name, value in raw.items() if name != "__name__"})
    if SIGNALS[signal].scope in (Scope.GPU, Scope.NODE) and "node" not in labels and "instance" in labels:
        labels["node"] = host_of(labels["instance"])
    return dict(sorted(labels.items()))


def gap(signal: str, present: Iterable[Engine]) -> Gap:
    """Why ``signal`` is missing although ``present`` are there, and how to get it."""
    known = SIGNALS[signal]
    silent: list[str] = []
    for engine in present:
        definition = engine.signals.get(signal)
        if isinstance(definition, Absent):
            return Gap(signal, f"{engine.title} does not export it: {definition.why}", known.absence)
        if definition is not None:
            names = next(selects(definition.expr)).names
            silent.append(f"{names[0]} has no values in this window ({engine.title})")
    return Gap(signal, silent[0] if silent else "nothing here exports it", known.absence)


def sorted_series(series: Iterable[Series]) -> tuple[Series, ...]:
    """Series in a stable order: by producer, then labels."""
    return tuple(sorted(series, key=lambda one: (one.producer, sorted(one.labels.items()))))
