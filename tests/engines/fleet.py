"""Series of a labelled fleet, made so that what a recording does in each of its places shows.

``made_up`` gives bare targets, one metric each. Here every target has its cluster, node and model; every
metric stands there at least twice, so that a sum is not a maximum; definitions with alternatives have
targets on which only some of the alternatives exist; and values lie on both sides of each limit.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from diag.engines import ENGINES, Definition
from diag.signals.algebra import Expr, FirstOf, Keep, Matcher, Select, Unless, spellings
from diag.signals.frame import RawSeries
from tests.engines.made_up import SECONDS, START, make, read_from, variants

__all__ = ["fleet"]

_UUID = "3f2504e0-4f89-11d3-9a0c-0305e82c330{}"
_AGES = 24  # of a definition's names and labels, that many combinations; of more, each in turn
_MASKS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
_Read = tuple[str, Select]  # kind, what is read


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A series to be drawn: its ``kind``, its name on the ``wire``, and whether it ends halfway."""

    kind: str
    wire: str
    labels: dict[str, str]
    gone: bool = False


def fleet() -> list[RawSeries]:
    """Every series; the same at each call."""
    random = np.random.default_rng(20261130)
    series: dict[tuple[tuple[str, str], ...], RawSeries] = {}
    for wanted in (*_twins(), *_told(), *_parted()):
        if tuple(sorted({"__name__": wanted.wire, **wanted.labels}.items())) not in series:
            for one in _drawn(wanted, random):
                series[tuple(sorted(one.labels.items()))] = one
    for one in (*_levels(), *_masks()):
        series.setdefault(tuple(sorted(one.labels.items())), one)
    return list(series.values())


def _drawn(wanted: _Wanted, random: np.random.Generator) -> Iterator[RawSeries]:
    for one in make(wanted.kind, wanted.wire, wanted.labels, random):
        # Bounds differ between releases.
        if wanted.labels.get("part") == "1" and one.labels.get("le") == "1.0":
            continue
        # Sentinels are among the levels.
        values = np.where(one.values > 1e18, 7.0 + 3.0 * np.arange(len(one.values)) % 50.0, one.values)
        if wanted.kind == "counter" and (one.values > 1e18).any():
            values = 3.0 * np.arange(len(one.values))
        if "hits" in wanted.wire:
            values = np.round(values * 0.3)
        if wanted.kind == "gauge" and any(
            word in wanted.wire for word in ("hit_rate", "event_reasons", "throttle")
        ):
            values = (values > np.nanmean(values) * random.uniform(0.7, 1.5)).astype(float)
        kept = one.times < START + (SECONDS / 2 if wanted.gone else SECONDS)
        yield RawSeries(one.labels, one.times[kept], values[kept])


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
                for age, part in itertools.product(range(len(wires)), _parts(name, kind)):
                    yield _Wanted(kind, wires[age], {**_target(name, f"twins{age}"), **part, **variant})
                    labels = {**_target(name, f"copies{age}"), **_repeated(name), **variant}
                    yield _Wanted(kind, wires[age], labels)
                for number in range(len(wires) * (1 if kind == "buckets" else 2)):
                    labels = {**_target(name, "mixed"), "part": str(number), **variant}
                    yield _Wanted(kind, wires[number % len(wires)], labels)
                for age in range(len(wires) - 1):
                    labels = {**_target(name, f"rollout{age}"), **variant}
                    yield _Wanted(kind, wires[age], labels, gone=True)
                    yield _Wanted(kind, wires[age + 1], labels)


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
                yield _Wanted("gauge", select.names[0], labels)


def _parted() -> Iterator[_Wanted]:
    """For each definition that reads several things: targets that have all of them, one gone halfway, or one
    in a state that does not count; where there are alternatives, targets that have one, two, all but one."""
    for title, expr in _definitions():
        read = _read_once(expr)
        if len(read) < 2:
            continue
        yield from _with_some(f"{title}-whole", read, ages=_AGES)
        if _has(expr, Unless):
            for number, one in enumerate(read[1:]):
                yield from _with_some(f"{title}-but{number}", (read[0], one))
                yield from _with_some(f"{title}-gone{number}", (read[0], one), gone=one[1])
            continue
        for number, (_, select) in enumerate(read):
            yield from _with_some(f"{title}-gone{number}", read, gone=select)
            if _met_by(select, False):
                yield from _with_some(f"{title}-other{number}", read, other=select)
        sizes = {1, 2, len(read) - 1} & set(range(1, len(read))) if _has(expr, FirstOf) else set()
        chosen = itertools.chain.from_iterable(itertools.combinations(read, size) for size in sorted(sizes))
        for number, some in enumerate(chosen):
            yield from _with_some(f"{title}-some{number}", some)


def _with_some(
    title: str,
    some: Sequence[_Read],
    *,
    gone: Select | None = None,
    other: Select | None = None,
    ages: int = 16,
) -> Iterator[_Wanted]:
    """Targets with ``some``, each under all its names and with all labels that its conditions meet, in all
    combinations up to ``ages`` of them; ``gone`` ends halfway, ``other`` has labels that its conditions do
    not meet."""
    forms = [list(itertools.product(_met_by(s, s is not other), _wires(s))) for _, s in some]
    every = math.prod(map(len, forms))
    apart = every <= ages
    lengths = [len(those) if apart else 1 for those in forms]
    strides = [math.prod(lengths[:at]) for at in range(len(forms))]
    for age in range(every if apart else max(map(len, forms))):
        for (kind, select), those, each in zip(some, forms, strides, strict=True):
            variant, wire = those[age // each % len(those)]
            for part in "01":
                labels = {**_target(select.names[0], f"{title}-age{age}"), "part": part, **variant}
                yield _Wanted(kind, wire, labels, gone=select is gone)


def _met_by(select: Select, met: bool) -> list[dict[str, str]]:
    return [one for one in variants(select.names[0]) if _meets(select.where, one) == met]


def _levels() -> Iterator[RawSeries]:
    """Below, within and beyond each limit that a definition holds values to, and from one to the other, while
    whatever else it needs lies within."""
    for title, expr in _definitions():
        kept = {select: one.high for one in _kept(expr) for _, select in read_from(one)}
        for chosen, high in kept.items():
            low, beyond = 0.75 * high, 1.5 * high
            pairs = ((-1.0, -1.0), (0.3, 0.3), (low, low), (beyond, beyond), (low, beyond), (beyond, low))
            for number, (first, then) in enumerate(pairs):
                place = f"{title}-{chosen.names[0]}-level{number}"
                yield _stepping(chosen.names[0], place, first, then)
                if not _has(expr, FirstOf):
                    yield from _within_limits(kept, chosen, place)
            for number, (first, then) in enumerate(((-high, -low), (low, beyond), (beyond, low))):
                place = f"{title}-{chosen.names[0]}-growing{number}"
                steps = _stepping(chosen.names[0], place, first, then)
                yield RawSeries(steps.labels, steps.times, steps.values + (steps.times - START) * 1e-3 * high)
                yield from _within_limits(kept, chosen, place)


def _within_limits(kept: Mapping[Select, float], but: Select, place: str) -> Iterator[RawSeries]:
    for select, high in kept.items():
        if select != but:
            yield _stepping(select.names[0], place, 0.9 * high, 0.9 * high)


def _masks() -> Iterator[RawSeries]:
    """Masks of reasons, each from nothing, to nothing, and lasting."""
    for name in _MASKS:
        for mask in (0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100):
            for first, then in ((0.0, mask), (mask, 0.0), (mask, mask)):
                yield _stepping(name, f"{name}-{first:g}-{then:g}", first, then)
    # Of two on one card: the larger's bit alone, the smaller's alone, a bit that adding both would lose.
    for both in ((0x20, 0x80), *((low, bit) for bit in (0x4, 0x8, 0x20, 0x40, 0x80) for low in (0x2, bit))):
        for part, mask in enumerate(both):
            one = _stepping(name, f"masks-{both}", mask, mask)
            yield RawSeries({**one.labels, "part": str(part)}, one.times, one.values)
    for old, new in ((0xEC, 0x0), (0x0, 0xEC)):  # the field is renamed
        yield _stepping(_MASKS[0], f"masks-old{old}", new, np.nan)
        yield _stepping(_MASKS[1], f"masks-old{old}", old, old)
    for label in ("Hostname", "hostname"):  # one card under two spellings of its host
        one = _stepping(name, "masks-hosts", 0xCC, 0xCC)
        yield RawSeries({**one.labels, label: ""}, one.times, one.values)


def _stepping(name: str, instance: str, first: float, then: float) -> RawSeries:
    times = np.arange(START, START + SECONDS, 5.0)
    values = np.where(times > START + SECONDS / 2, then, first)
    return RawSeries({"__name__": name, **_target(name, instance)}, times, values)


def _target(name: str, instance: str) -> dict[str, str]:
    """Labels of the target, and of the card or model where ``name`` has one."""
    labels = {"instance": instance, "job": "fleet", "cluster": "c1", "namespace": "prod", "pod": "chat-0"}
    # The collector of NUMA nodes and dcgm-exporter write names of their own.
    if not ("numa_" in name and name.startswith("node_")) and not _is_card_of_twins(name, instance):
        labels["node"] = "machine-1"
    if name.startswith("node_") and not instance.startswith("process-"):
        return {**labels, "nodename": "machine-1.example"}
    if name.startswith("DCGM"):
        names = {"Hostname": "machine-2", "hostname": "machine-3"}
        if _is_card_of_twins(name, instance):
            names = {"Hostname": "machine-1"}
        return {**labels, "gpu": "0", "UUID": "GPU-" + _UUID.format(1), "GPU_I_ID": "3", **names}
    if name.startswith(("nvidia", "llmdiag_")):
        before = "" if name.startswith("nvidia") else "GPU-"
        return {**labels, "gpu": "0", "uuid": before + _UUID.format(1)}
    return {**labels, "model_name": "m"} if name.startswith(("vllm:", "sglang:")) else labels


def _is_card_of_twins(name: str, instance: str) -> bool:
    return name.startswith("DCGM") and instance.startswith("twins")


def _parts(name: str, kind: str) -> Iterator[dict[str, str]]:
    """Labels that no recording keeps, or that it must not count."""
    yield from ({"part": "0"}, {"part": "1"})
    if kind == "buckets":  # of three, the order of adding decides where two buckets are as full as each other
        return
    if _repeated(name):
        yield {"part": "0", **_repeated(name)}
    if name.startswith("sglang:"):
        yield from ({"dp_rank": "0", "tp_rank": rank} for rank in "01")
    if name.startswith("DCGM"):  # the host name by its other label, by the target's own, and by none
        yield {"Hostname": "", "hostname": "machine-1"}
        yield {"Hostname": "", "hostname": "machine-3", "UUID": "GPU-" + _UUID.format(3)}
        yield {"node": "machine-2"}
        yield {"Hostname": "", "UUID": "GPU-" + _UUID.format(2), "GPU_I_ID": ""}


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
