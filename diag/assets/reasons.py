"""Why a query has nothing to show on a store: the metric, its spelling, a label, a bucket, or a join."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import promql_parser as promql

from diag.assets.holdings import Holdings, is_idle
from diag.assets.owners import kin, known_about, owners, owners_of_pattern, part_of, same_metric
from diag.assets.queries import Selection, selections, text, unconditional
from diag.assets.rules.model import duration
from diag.engines import engine
from diag.signals.algebra import Matcher

__all__ = ["TRANSIENT", "Reason", "absent", "reasons", "stuck"]

Kind = Literal[
    "producer_absent", "metric_absent", "feature_off", "renamed", "first_event", "label_missing",
    "value_absent", "bucket_missing", "no_pair", "no_history", "too_young", "excluded", "filtered", "refused",
]  # fmt: skip

# These come into being with the first thing they count; until then nothing is wrong.
_WITH_THE_FIRST_EVENT = (
    "ALERTS",
    "http_requests_total",
    "llmdiag_gpu_xid_last_timestamp_seconds",
    "llmdiag_gpu_xid_total",
    "llmdiag_nvml_errors_total",
    "sglang:http_responses_total",
    "sglang:num_retracted_requests_total",
)
# An engine exports these only with a feature that most do without.
_WITH_A_FEATURE = {
    "sglang:kv_transfer_": "a KV connector",
    "sglang:lora_": "LoRA",
    "sglang:num_bootstrap_failed_": "a KV connector",
    "sglang:num_decode_prealloc_": "a KV connector",
    "sglang:num_decode_transfer_": "a KV connector",
    "sglang:num_prefill_retries_": "a KV connector",
    "sglang:num_transfer_failed_": "a KV connector",
    "sglang:spec_": "speculative decoding",
    "vllm:lora_": "LoRA",
    "vllm:mooncake_": "a KV connector",
    "vllm:nixl_": "a KV connector",
    "vllm:spec_decode_": "speculative decoding",
}
_NAMED_AT_MOST = 8

TRANSIENT: frozenset[Kind] = frozenset(
    ("feature_off", "first_event", "too_young", "excluded", "filtered", "producer_absent")
)
"""Kinds that need nobody's hand: nothing is wrong, or nothing yet."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. ``text`` is a clause for an operator; ``about`` the metric or producer it is about
    (``a|b``: either; ``llmdiag sessions``: a part of it);
    ``note`` what else is known, as the first release that has it."""

    kind: Kind
    about: str
    text: str
    note: str = ""


def reasons(
    missing: Sequence[Selection], holdings: Holdings, producers: Collection[str]
) -> tuple[Reason, ...]:
    """Why each of ``missing`` is not there; spellings of one metric give one reason."""
    told: list[Selection] = []
    for one in missing:
        if not any(same_metric(one.name, other.name) and one.matchers == other.matchers for other in told):
            told.append(one)
    return tuple(dict.fromkeys(_reason(one, holdings, producers) for one in told))


def _reason(one: Selection, holdings: Holdings, producers: Collection[str]) -> Reason:
    if holdings.there(one.whole) if one.name else False:
        return _unmatched(one, holdings)
    own = owners(one.name) if one.name else owners_of_pattern(one.matchers)
    if own and not set(own) & set(producers):
        return absent(own)
    part = part_of(one.name)
    if part and not any(part_of(name) == part for name in holdings.listed):
        return Reason("producer_absent", f"{own[0]} {part}", f"no {engine(own[0]).title} {part} is scraped")
    candidates = kin(one.name, holdings.listed) if one.name else ()
    alike = [name for name in candidates if holdings.there(Selection(name))]
    if alike:
        return Reason("renamed", one.name, f"{one.name} is called {' and '.join(alike)} here")
    if one.name in _WITH_THE_FIRST_EVENT:
        return Reason("first_event", one.name, f"{one.name} appears with the first event it counts")
    feature = next((what for lead, what in _WITH_A_FEATURE.items() if one.name.startswith(lead)), "")
    if feature:
        return Reason(
            "feature_off", one.name, f"it takes {feature} to export {one.name}", known_about(one.name)
        )
    who = " or ".join(engine(name).title for name in own)
    what = f"{who} here does not export {one.name}" if own else f"no series {one.name or one}"
    return Reason("metric_absent", one.name or str(one), what, known_about(one.name))


def absent(producers: Sequence[str]) -> Reason:
    """None of ``producers`` is there."""
    titles = " or ".join(engine(name).title for name in producers)
    return Reason("producer_absent", "|".join(producers), f"no {titles} is scraped")


def _unmatched(one: Selection, holdings: Holdings) -> Reason:
    """The metric is there, but none of its series fits."""
    one = Selection(one.name, tuple(matcher for matcher in one.matchers if not is_idle(matcher)))
    if one.name in _WITH_THE_FIRST_EVENT:
        return Reason("first_event", one.name, f"{one} appears with the first event it counts")
    for matcher in one.matchers:
        if holdings.there(Selection(one.name, (matcher,))):
            continue
        shapes = holdings.shapes(Selection(one.name, (matcher,)))
        values = sorted({shape.get(matcher.label, "") for shape in shapes}, key=_by_number)
        if matcher.label == "le":
            bounds = _some(value for value in values if value)
            said = f"{one.name} has no bucket le{matcher.op}{matcher.value!r}; its bounds are {bounds}"
            return Reason("bucket_missing", one.name, said.replace("'", '"'))
        if values == [""]:
            return Reason("label_missing", one.name, f"{one.name} has no label {matcher.label}")
        return Reason("value_absent", one.name, _no_value(one.name, matcher, values))
    return Reason("value_absent", one.name, f"no series {one}")


def _no_value(name: str, matcher: Matcher, values: Sequence[str]) -> str:
    here = _some(repr(value) for value in values).replace("'", '"')
    return f'{name} has no {matcher.label}{matcher.op}"{matcher.value}", only {here}'


def _by_number(value: str) -> tuple[float, str]:
    try:
        return float(value), value
    except ValueError:
        return float("inf"), value


def _some(values: Iterable[str]) -> str:
    every = list(values)
    more = f" and {len(every) - _NAMED_AT_MOST} more" if len(every) > _NAMED_AT_MOST else ""
    return ", ".join(every[:_NAMED_AT_MOST]) + more


def stuck(node: Any, holdings: Holdings) -> Reason:
    """Why ``node`` gives no row although all it selects is there: the innermost place that gives none."""
    match node:
        case promql.VectorSelector() | promql.MatrixSelector():
            return _no_history(node, holdings)
        case promql.SubqueryExpr():
            return stuck(node.expr, holdings) if _empty(node.expr, holdings) else _no_history(node, holdings)
        case promql.BinaryExpr():
            for side in (node.lhs, node.rhs):
                if _empty(side, holdings):
                    return stuck(side, holdings)
            if str(node.op) == "unless":
                return _left_out(node, holdings)
            if not _empty(unconditional(node), holdings):
                about = _read(node, holdings)
                return Reason("filtered", about, f"no value of {about} passes `{node.op}`")
            if _meet(node, holdings):  # some stores drop what comes out as NaN
                about = _read(node, holdings)
                return Reason("filtered", about, f"`{node.op}` of {about} has no result at that moment")
            return _no_pair(node, holdings)
        case promql.Call():
            inner = next((part for part in node.args if selections(part)), None)
            return stuck(inner, holdings) if inner is not None else _unexplained(node)
        case promql.NumberLiteral() | promql.StringLiteral():
            return _unexplained(node)
        case _:
            return stuck(node.expr, holdings)


def _empty(node: Any, holdings: Holdings) -> bool:
    if not selections(node):
        return False
    query = text(node)
    answer = holdings.ask([query])[query]
    return not answer.rows and not answer.refusal


def _no_history(node: Any, holdings: Holdings) -> Reason:
    own = getattr(node, "vector_selector", node)
    about = _read(node, holdings)
    span: timedelta | None = getattr(node, "range", None)
    offset: timedelta | None = getattr(own, "offset", None)
    if offset:
        said = f"nothing of {about} is {duration(round(offset.total_seconds()))} old"
        return Reason("too_young", about, said)
    if span:
        said = f"too few samples of {about} in the last {duration(round(span.total_seconds()))}"
    else:
        said = f"{about} fell silent"
    return Reason("no_history", about, said)


def _left_out(node: Any, holdings: Holdings) -> Reason:
    about = _read(node.lhs, holdings)
    return Reason("excluded", about, f"every series of {about} is one that it leaves out")


def _meet(node: Any, holdings: Holdings) -> bool:
    """Whether rows of both sides of an operator belong together, whatever comes of it."""
    matching = str(node.modifier.matching or "") if node.modifier else ""
    query = f"({text(node.lhs)}) and {matching} ({text(node.rhs)})"
    return bool(holdings.ask([query])[query].rows)


def _no_pair(node: Any, holdings: Holdings) -> Reason:
    """Both sides of an operator have rows, and no two of them belong together."""
    queries = [text(side) for side in (node.lhs, node.rhs)]
    answers = holdings.ask(queries)
    left, right = (_label_names(answers[query].rows) for query in queries)
    matching = node.modifier.matching if node.modifier else None
    labels = set(matching.labels) if matching else set()
    on = matching is not None and str(matching.type).endswith("Include")
    compared = labels if on else (left | right) - labels
    lone_labels = sorted(label for label in compared if (label in left) != (label in right))
    about = _read(node, holdings)
    if lone_labels:
        said = f"{_list(lone_labels)} on one side of `{node.op}` only, so that {about} never meet"
        return Reason("label_missing", about, said)
    where = f" on {', '.join(sorted(compared))}" if compared else ""
    return Reason("no_pair", about, f"{about} never meet{where}")


def _read(node: Any, holdings: Holdings) -> str:
    """The metrics that ``node`` reads here, for a sentence."""
    return _some(dict.fromkeys(one.name or str(one) for one in selections(node) if holdings.there(one)))


def _label_names(rows: Sequence[Mapping[str, str]]) -> set[str]:
    return {label for row in rows for label in row if label != "__name__"}


def _list(labels: Sequence[str]) -> str:
    return f"label{'s' * (len(labels) > 1)} {', '.join(labels)} stand{'s' * (len(labels) == 1)}"


def _unexplained(node: Any) -> Reason:
    return Reason("no_history", text(node), f"{text(node)} gives nothing")
