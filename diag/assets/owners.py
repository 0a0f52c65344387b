"""Who exports a metric, and how else it is spelled: read off the engine files, told nowhere twice."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from diag.assets.queries import matches
from diag.engines import ENGINES, Definition, Engine
from diag.signals.algebra import Matcher, selects, spellings

__all__ = [
    "PRODUCERS",
    "SERVING",
    "kin",
    "known_about",
    "owners",
    "owners_of_pattern",
    "part_of",
    "same_metric",
]

PRODUCERS: tuple[str, ...] = tuple(engine.name for engine in ENGINES)
"""The names that ``needs`` may hold."""

SERVING: tuple[str, ...] = ("vllm", "sglang")
"""Those of them that answer requests; the others watch."""

_PREFIXES = {
    "vllm": ("vllm:", "vllm_"),
    "sglang": ("sglang:", "sglang_"),
    "llmdiag": ("llmdiag_",),
    "dcgm": ("DCGM_",),
    "nvidia_gpu_exporter": ("nvidia_smi_",),
    "node": ("node_",),
    "kubernetes": ("container_",),
    "process": ("up", "scrape_", "process_"),
}

# The parts of diag-exporter by their series; the first that fits. What every part writes is of none.
_PARTS = (
    ("gpu", ("llmdiag_gpu_", "llmdiag_nvml_", "llmdiag_engine_numa_", "llmdiag_engine_cpus_")),
    ("engine", ("llmdiag_engine_", "llmdiag_model_")),
    ("", ("llmdiag_exporter_", "llmdiag_up", "llmdiag_snapshot_", "llmdiag_collector_")),
    ("sessions", ("llmdiag_",)),
)


@lru_cache(maxsize=1)
def _groups() -> dict[str, frozenset[str]]:
    """Each metric of an engine file with all names that stand beside it in a selection."""
    found: dict[str, frozenset[str]] = {}
    for engine in ENGINES:
        for signal, select in _read(engine):
            if not signal:  # a probe's names are signs of life, not spellings of one thing
                continue
            names = frozenset(spelling for name in select for spelling in spellings(name))
            for name in names:
                found[name] = found.get(name, frozenset()) | names
    return found


def _read(engine: Engine) -> list[tuple[str, tuple[str, ...]]]:
    """Signal and names of every selection in ``engine``; facts and the probe belong to no signal."""
    found = [
        (signal, select.names)
        for signal, definition in engine.signals.items()
        if isinstance(definition, Definition)
        for select in selects(definition.expr)
    ]
    found += [("", select.names) for select in (engine.probe, *engine.numbers.values())]
    return [*found, ("", engine.info.names)] if engine.info else found


@lru_cache(maxsize=1)
def _signals() -> dict[str, dict[str, tuple[str, ...]]]:
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for engine in ENGINES:
        for signal, names in _read(engine):
            for name in (spelling for one in names for spelling in spellings(one)):
                own = found.setdefault(name, {})
                own[engine.name] = tuple(dict.fromkeys((*own.get(engine.name, ()), *filter(None, (signal,)))))
    return found


def owners(name: str) -> tuple[str, ...]:
    """The producers that export ``name``; none if it is nobody's we know.

    By its prefix where that is one producer's own; else those whose engine files read it."""
    for producer, prefixes in _PREFIXES.items():
        if any(name == prefix or (len(prefix) > 2 and name.startswith(prefix)) for prefix in prefixes):
            return (producer,)
    return tuple(_signals().get(name, {}))


def part_of(name: str) -> str:
    """The part of diag-exporter that writes ``name`` (gpu, engine, sessions); empty for anything else."""
    return next((part for part, leads in _PARTS if name.startswith(leads)), "")


def owners_of_pattern(matchers: Iterable[Matcher]) -> tuple[str, ...]:
    """The producers that export a metric whose name fits every condition on ``__name__``."""
    patterns = [one for one in matchers if one.label == "__name__"]
    names = [name for name in _signals() if all(matches(one, name) for one in patterns)]
    found = {producer for name in names for producer in owners(name)}
    return tuple(producer for producer in PRODUCERS if producer in found)


def known_about(name: str) -> str:
    """What the engine files say about when ``name`` is exported; empty when they say nothing."""
    own = _signals().get(name, {})
    for engine in ENGINES:
        for signal in own.get(engine.name, ()) if engine.name in owners(name) else ():
            definition = engine.signals[signal]
            if isinstance(definition, Definition) and (definition.since or definition.note):
                since = f"known since {engine.title} {definition.since}" if definition.since else ""
                return "; ".join(filter(None, (since, definition.note)))
    return ""


def same_metric(one: str, other: str) -> bool:
    """Whether two names are spellings of one metric."""
    return one == other or other in _groups().get(one, ()) or _bare(one) == _bare(other)


def kin(name: str, present: frozenset[str]) -> tuple[str, ...]:
    """Other names in ``present`` under which the same metric may stand, sorted.

    Renames that an engine file knows; else the same words with other separators, with or without
    ``_total``, or behind a prefix that a relabelling put there."""
    known = (_groups().get(name, frozenset()) - {name}) & present
    if known:
        return tuple(sorted(known))
    bare = _bare(name)
    return tuple(sorted(one for one in present if one != name and _same(_bare(one), bare)))


def _bare(name: str) -> str:
    return name.replace(":", "_").removesuffix("_total")


def _same(candidate: str, wanted: str) -> bool:
    return candidate == wanted or candidate.endswith(f"_{wanted}")
