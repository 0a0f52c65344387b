"""Recording rules generated from ``diag.engines``: one name for each signal, whatever the producer.

``vllm:time_to_first_token_seconds_bucket`` and SGLang's and every older spelling of it become
``llm:ttft_seconds_p95``, with the labels that say whose it is. A recording reads raw metrics alone,
never another recording, so that back-filling them in any order works.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TypeVar

from diag.assets.rules.model import Recording
from diag.engines import Definition, Engine
from diag.errors import SignalError
from diag.signals import SIGNALS, signal
from diag.signals.algebra import Aggregate, Expr, FirstOf, Quantile, selects
from diag.signals.promql import selector, write
from diag.signals.vocabulary import Scope

__all__ = ["TARGET_LABELS", "WINDOW_SECONDS", "fact_recordings", "kept_labels", "recorded", "recordings"]

WINDOW_SECONDS = 300
"""Look-back of every recording: four scrapes even where targets are scraped once a minute."""

TARGET_LABELS = ("cluster", "job")
"""Kept beside the labels that an engine file keeps; both are absent on a bare page."""

_LEVELS = {Scope.ENGINE: "llm", Scope.GPU: "gpu", Scope.NODE: "host", Scope.REQUESTS: "requests"}
# DCGM's own spellings, which the recordings turn into ours.
_DCGM_LABELS = ("UUID", "Hostname", "hostname", "GPU_I_ID")
_T = TypeVar("_T", bound=Expr)


def recorded(name: str) -> str:
    """The recorded series of the canonical signal ``name``: ``gpu_power_watts`` -> ``gpu:power_watts``.

    Raises ``UnknownSignal``, and ``SignalError`` for a signal that is recorded nowhere (what the store
    writes itself: ``up``)."""
    scope = signal(name).scope
    if scope is Scope.TARGET:
        raise SignalError(f"{name!r} is not recorded", hint="read `up` or scrape_duration_seconds")
    if name.startswith("node_infiniband_"):
        return "fabric:" + name.removeprefix("node_")
    return f"{_LEVELS[scope]}:" + name.removeprefix("gpu_").removeprefix("node_")


def recordings(engine: Engine) -> tuple[Recording, ...]:
    """The recordings of all signals that ``engine`` delivers, in the vocabulary's order."""
    found = []
    for name, meaning in SIGNALS.items():
        definition = engine.signals.get(name)
        if isinstance(definition, Definition) and meaning.scope is not Scope.TARGET:
            expr = _canonical(engine, name, _kept(engine, definition.expr))
            found.append(Recording(recorded(name), expr, engine.name, name, _comment(name, definition)))
    return (*found, *fact_recordings(engine))


def fact_recordings(engine: Engine) -> tuple[Recording, ...]:
    """Numbers that an exporter tells about another target: ``engine`` there is ``instance`` here."""
    found = []
    for fact, select in engine.numbers.items():
        by = ", ".join((*TARGET_LABELS[:1], "engine"))
        value = f"max by ({by}) ({selector(select.names[0], select.where)})"
        expr = f'label_replace({value}, "instance", "$1", "engine", "(.+)")'
        found.append(Recording(f"llm:{fact}", expr, engine.name, "", "told of the engine asked"))
    return tuple(found)


def kept_labels(engine: Engine, name: str) -> tuple[str, ...]:
    """The labels a recorded signal of ``engine`` can bear, those of the rule itself included."""
    definition = engine.signals[name]
    if not isinstance(definition, Definition):
        raise SignalError(f"{engine.title} does not deliver {name!r}", hint=definition.why)
    outer = _outer_labels(_kept(engine, definition.expr))
    if engine.name == "dcgm":
        outer = (*(label for label in outer if label not in _DCGM_LABELS), "uuid", "mig_instance")
    return (*(label for label in outer if label != "le"), "producer")


def _comment(name: str, definition: Definition) -> str:
    parts = [signal(name).meaning]
    if definition.since:
        parts.append(f"since {definition.since}")
    if definition.note:
        parts.append(definition.note)
    return "; ".join(parts)


def _extra(engine: Engine, expr: Expr) -> tuple[str, ...]:
    """``model_name`` where every metric in ``expr`` bears it; beside one that has none it would part
    the two sides of a join."""
    own = all(n.startswith(f"{engine.name}:") for part in selects(expr) for n in part.names)
    return ("model_name",) if own and engine.name in ("vllm", "sglang") else ()


def _kept(engine: Engine, expr: Expr) -> Expr:
    dropped = ("uuid",) if engine.name == "dcgm" else _DCGM_LABELS
    return _labelled(expr, _extra(engine, expr), dropped)


def _labelled(expr: _T, extra: tuple[str, ...], dropped: tuple[str, ...]) -> _T:
    """``expr`` with the target's labels kept by each of its aggregations, ``dropped`` left out."""
    changes: dict[str, object] = {}
    for item in fields(expr):
        value = getattr(expr, item.name)
        if isinstance(value, Expr):
            changes[item.name] = _labelled(value, extra, dropped)
        elif isinstance(expr, FirstOf) and item.name == "exprs":
            changes["exprs"] = tuple(_labelled(part, extra, dropped) for part in expr.exprs)
    if isinstance(expr, Aggregate | Quantile):
        first = tuple(label for label in TARGET_LABELS if label not in expr.by)
        changes["by"] = (*first, *(label for label in expr.by if label not in dropped), *extra)
    return replace(expr, **changes)  # type: ignore[arg-type]


def _outer_labels(expr: Expr) -> tuple[str, ...]:
    if isinstance(expr, Aggregate | Quantile):
        return expr.by
    for item in fields(expr):
        value = getattr(expr, item.name)
        inner = value[0] if isinstance(expr, FirstOf) and item.name == "exprs" else value
        if isinstance(inner, Expr):
            return _outer_labels(inner)
    raise SignalError("an expression without an aggregation keeps every label")


def _canonical(engine: Engine, name: str, expr: Expr) -> str:
    text = write(expr, WINDOW_SECONDS).replace(f"[{WINDOW_SECONDS}s]", "[5m]")
    if signal(name).scope is not Scope.GPU:
        return text
    if engine.name == "nvidia_gpu_exporter":  # nvidia-smi's bare UUID, as NVML and DCGM write it
        return f'label_replace({text}, "uuid", "GPU-$1", "uuid", "([0-9a-f]+-.+)")'
    if engine.name != "dcgm":
        return text
    text = f'label_replace({text}, "uuid", "$1", "UUID", "(.+)")'
    text = f'label_replace({text}, "mig_instance", "$1", "GPU_I_ID", "(.+)")'
    # The target's own `node` where it has one, else the host name that DCGM writes.
    text = f'label_join({text}, "node", ";", "node", "Hostname", "hostname")'
    text = f'label_replace({text}, "node", "$1", "node", ";*([^;]*).*")'
    return f"max without ({', '.join(_DCGM_LABELS)}) ({text})"
