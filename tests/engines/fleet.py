"""Series of a labelled fleet, made so that what a recording does in each of its places shows.

``made_up`` gives bare targets, one metric each. Here every target has its cluster, node and model; every
metric stands there at least twice, so that a sum is not a maximum; definitions with alternatives have
targets on which only some of the alternatives exist; and values lie on both sides of each limit.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np

from diag.engines import ENGINES, Definition
from diag.signals.algebra import Expr, FirstOf, Keep, Matcher, Select, Unless, spellings
from diag.signals.frame import RawSeries
from tests.engines.made_up import SECONDS, START, make, read_from, variants

__all__ = ["fleet"]

_UUID = "3f2504e0-4f89-11d3-9a0c-0305e82c330{}"
_GONE, _OTHER = "gone", "other"
_Read = tuple[str, Select]  # kind, what is read
_Wanted = tuple[str, str, dict[str, str]]  # kind, name on the wire, labels


def fleet() -> list[RawSeries]:
    """Every series; the same at each call."""
    random = np.random.default_rng(20261130)
    series: dict[tuple[tuple[str, str], ...], RawSeries] = {}
    for kind, wire, labels in (*_twins(), *_told(), *_parted()):
        if tuple(sorted({"__name__": wire, **labels}.items())) not in series:
            for one in make(kind, wire, labels, random):
                # Bounds differ between releases.
                if labels.get("part") == "1" and one.labels.get("le") == "1.0":
                    continue
                series.setdefault(tuple(sorted(one.labels.items())), _ended(one))
    for one in _levels():
        series.setdefault(tuple(sorted(one.labels.items())), one)
    return list(series.values())


def _ended(one: RawSeries) -> RawSeries:
    """``one``, halfway gone when its label says so."""
    if _GONE not in one.labels.get("part", ""):
        return one
    before = one.times < START + SECONDS / 2
    return RawSeries(one.labels, one.times[before], one.values[before])


def _definitions() -> Iterator[tuple[str, Expr]]:
    for engine in ENGINES:
        for name, definition in engine.signals.items():
            if isinstance(definition, Definition):
                yield f"{engine.name}-{name}", definition.expr


def _twins() -> Iterator[_Wanted]:
    """Targets with everything under its newest name, under older ones, under all in turn (a release that is
    being rolled out), and what only repeats other targets; each series several times."""
    for _, expr in _definitions():
        for kind, select in read_from(expr):
            name, wires = select.names[0], _wires(select)
            for variant in variants(name):
                for age, part in itertools.product(range(len(wires)), _parts(name)):
                    yield kind, wires[age], {**_target(name, f"twins{age}"), **part, **variant}
                    yield kind, wires[age], {**_target(name, f"copies{age}"), **_repeated(name), **variant}
                for number in range(2 * len(wires)):
                    part = {"part": str(number)}
                    yield kind, wires[number % len(wires)], {**_target(name, "mixed"), **part, **variant}


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
    """For each definition that reads several things: targets that have all of them, one gone halfway, or one
    in a state that does not count; where there are alternatives, targets that have one, two, all but one."""
    for title, expr in _definitions():
        read = _read_once(expr)
        if len(read) < 2:
            continue
        yield from _with_some(f"{title}-whole", read, {})
        for number, (_, select) in enumerate(read):
            yield from _with_some(f"{title}-gone{number}", read, {select: _GONE})
            yield from _with_some(f"{title}-other{number}", read, {select: _OTHER})
        sizes = {1, 2, len(read) - 1} & set(range(1, len(read))) if _has(expr, FirstOf | Unless) else set()
        chosen = itertools.chain.from_iterable(itertools.combinations(read, size) for size in sorted(sizes))
        for number, some in enumerate(chosen):
            yield from _with_some(f"{title}-some{number}", some, {})


def _with_some(title: str, some: Sequence[_Read], differing: Mapping[Select, str]) -> Iterator[_Wanted]:
    """Targets with ``some``, each under all its names and with all labels that its conditions meet; or, where
    ``differing`` says so, with those that they don't."""
    wires = [_wires(select) for _, select in some]
    met = [_met_by(select, differing.get(select, "")) for _, select in some]
    for age in range(max(len(names) * len(those) for names, those in zip(wires, met, strict=True))):
        for (kind, select), names, those in zip(some, wires, met, strict=True):
            for part in "01" if those else ():
                labels = {**_target(names[0], f"{title}-age{age}"), "part": part}
                if differing.get(select) == _GONE:
                    labels["part"] = f"gone{part}"
                yield kind, names[age % len(names)], {**labels, **those[age // len(names) % len(those)]}


def _met_by(select: Select, differing: str) -> list[dict[str, str]]:
    wanted = differing != _OTHER
    return [one for one in variants(select.names[0]) if _meets(select.where, one) == wanted]


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
    if _repeated(name):
        yield {"part": "0", **_repeated(name)}
    if name.startswith("sglang:"):
        yield from ({"dp_rank": "0", "tp_rank": rank} for rank in "01")
    if name.startswith("DCGM"):  # the host name by its other label, by the target's own, and by none
        yield {"Hostname": "", "hostname": "machine-1"}
        yield {"node": "machine-2"}
        yield {"Hostname": "", "UUID": "GPU-" + _UUID.format(2)}


def _repeated(name: str) -> dict[str, str]:
    """The label of what another target says too."""
    if name.startswith("vllm:"):
        return {"server": "http://a"}
    return {"priority": "3"} if name.startswith("sglang:") else {}


def _wires(select: Select) -> list[str]:
    return [wire for name in select.names for wire in spellings(name)]


def _read_once(expr: Expr) -> list[_Read]:
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
