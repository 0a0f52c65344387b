"""Series of a labelled fleet, made so that what a recording does in each of its places shows.

``made_up`` gives bare targets, one metric each. Here every target has its cluster, node and model; every
metric stands there at least twice, so that a sum is not a maximum; definitions with alternatives have
targets on which only some of the alternatives exist; and values lie on both sides of each limit.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np

from diag.engines import ENGINES, Definition
from diag.signals.algebra import Expr, FirstOf, Keep, Matcher, Select, Unless, spellings
from diag.signals.frame import RawSeries
from tests.engines.made_up import SECONDS, START, make, read_from, variants

__all__ = ["fleet"]

_UUID = "3f2504e0-4f89-11d3-9a0c-0305e82c330{}"
_Wanted = tuple[str, str, dict[str, str]]  # kind, name on the wire, labels


def fleet() -> list[RawSeries]:
    """Every series; the same at each call."""
    random = np.random.default_rng(20261130)
    series: dict[tuple[tuple[str, str], ...], RawSeries] = {}
    for kind, wire, labels in (*_twins(), *_told(), *_parted()):
        if tuple(sorted({"__name__": wire, **labels}.items())) not in series:
            for one in make(kind, wire, labels, random):
                series.setdefault(tuple(sorted(one.labels.items())), one)
    for one in _levels():
        series.setdefault(tuple(sorted(one.labels.items())), one)
    return list(series.values())


def _definitions() -> Iterator[tuple[str, Expr]]:
    for engine in ENGINES:
        for name, definition in engine.signals.items():
            if isinstance(definition, Definition):
                yield f"{engine.name}-{name}", definition.expr


def _twins() -> Iterator[_Wanted]:
    """One target with everything, each series several times."""
    for _, expr in _definitions():
        for kind, select in read_from(expr):
            name = select.names[0]
            for part, variant in itertools.product(_parts(name), variants(name)):
                yield kind, name, {**_target(name, "twins"), **part, **variant}


def _told() -> Iterator[_Wanted]:
    """What an exporter tells about other targets."""
    for engine in ENGINES:
        for select in engine.numbers.values():
            for about, part in itertools.product("ab", "01"):
                labels = {
                    **_target(select.names[0], "exporter"),
                    "engine": f"http://{about}:8000",
                    "part": part,
                }
                yield "gauge", select.names[0], labels


def _parted() -> Iterator[_Wanted]:
    """For each definition with alternatives, targets that have some of what it reads: one thing, two, all
    but one; each under each of its names."""
    for title, expr in _definitions():
        if not _has(expr, FirstOf | Unless):
            continue
        read = _read_once(expr)
        sizes = sorted({1, 2, len(read) - 1} & set(range(1, len(read))))
        chosen = itertools.chain.from_iterable(itertools.combinations(read, size) for size in sizes)
        for number, some in enumerate(chosen):
            yield from _with_some(f"{title}-{number}", some)


def _with_some(title: str, some: Sequence[tuple[str, Select]]) -> Iterator[_Wanted]:
    wires = [[wire for name in select.names for wire in spellings(name)] for _, select in some]
    for age in range(max(map(len, wires))):
        for (kind, select), names in zip(some, wires, strict=True):
            variant = next(one for one in variants(select.names[0]) if _meets(select.where, one))
            for part in "01":
                labels = {**_target(select.names[0], f"{title}-age{age}"), "part": part, **variant}
                yield kind, names[age % len(names)], labels


def _levels() -> Iterator[RawSeries]:
    """Below, within and beyond each limit that a definition holds values to, and from one to the other."""
    times = np.arange(START, START + SECONDS, 5.0)
    late = times > START + SECONDS / 2
    for title, expr in _definitions():
        alone = _has(expr, FirstOf)
        for kept in _kept(expr):
            for _, select in read_from(kept):
                low, high = 0.75 * kept.high, 1.5 * kept.high
                pairs = ((-1.0, -1.0), (0.3, 0.3), (low, low), (high, high), (low, high), (high, low))
                for number, (first, then) in enumerate(pairs):
                    name = select.names[0]
                    place = f"{title}-{name if alone else ''}-level{number}"
                    labels = {"__name__": name, **_target(name, place)}
                    yield RawSeries(labels, times, np.where(late, then, first))


def _target(name: str, instance: str) -> dict[str, str]:
    """Labels of the target, and of the card or model where ``name`` has one."""
    labels = {"instance": instance, "job": "fleet", "cluster": "c1"}
    if name.startswith("node_"):
        own = {} if "numa" in name else {"node": "machine-1"}
        return {**labels, **own, "nodename": "machine-1.example"}
    if name.startswith("DCGM"):
        mig = {"GPU_I_ID": "3"} if "twins" in instance else {}
        return {**labels, "gpu": "0", "UUID": "GPU-" + _UUID.format(1), "Hostname": "machine-1", **mig}
    labels |= {"node": "machine-1", "namespace": "prod", "pod": "chat-0"}
    if name.startswith(("nvidia", "llmdiag_")):
        before = "" if name.startswith("nvidia") else "GPU-"
        return {**labels, "gpu": "0", "uuid": before + _UUID.format(1)}
    return {**labels, "model_name": "m"} if name.startswith(("vllm:", "sglang:")) else labels


def _parts(name: str) -> Iterator[dict[str, str]]:
    """Labels that no recording keeps, or that it must not count."""
    yield from ({"part": "0"}, {"part": "1"})
    if name.startswith("vllm:"):  # the router's copy
        yield {"part": "0", "server": "http://a"}
    if name.startswith("sglang:"):
        yield from ({"dp_rank": "0", "tp_rank": rank} for rank in "01")
        yield {"part": "0", "priority": "3"}
    if name.startswith("DCGM"):  # the host name by its other label, by the target's own, and by none
        yield {"Hostname": "", "hostname": "machine-1"}
        yield {"node": "machine-2"}
        yield {"Hostname": "", "UUID": "GPU-" + _UUID.format(2)}


def _read_once(expr: Expr) -> list[tuple[str, Select]]:
    found: dict[Select, str] = {}
    for kind, select in read_from(expr):
        found.setdefault(select, kind)
    return [(kind, select) for select, kind in found.items()]


def _meets(where: Sequence[Matcher], labels: dict[str, str]) -> bool:
    return all(_met(one, labels.get(one.label, "")) for one in where)


def _met(matcher: Matcher, value: str) -> bool:
    equal = value == matcher.value
    if "~" in matcher.op:
        equal = re.fullmatch(matcher.value, value) is not None
    return equal != matcher.op.startswith("!")


def _kept(expr: Expr) -> list[Keep]:
    return [one for one in _within(expr) if isinstance(one, Keep)]


def _has(expr: Expr, kinds: object) -> bool:
    return any(isinstance(one, kinds) for one in _within(expr))  # type: ignore[arg-type]


def _within(expr: Expr) -> Iterator[Expr]:
    yield expr
    for item in fields(expr):
        value = getattr(expr, item.name)
        for inner in value if isinstance(expr, FirstOf) else (value,):
            if isinstance(inner, Expr):
                yield from _within(inner)
