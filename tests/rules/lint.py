"""What promtool does not see in a rule: our own lint, after the ideas of pint and mixtool.

Each check yields complaints as text; a rule file without complaints gives none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser as promql

from tests.rules.labelling import Labels, given_labels, matched, output_labels
from tests.rules.replay import metric_names
from tests.rules.rulefiles import Rule

__all__ = ["complaints", "known_labels"]

SEVERITIES = ("critical", "warning", "info", "none")
ANNOTATIONS = frozenset(
    {"summary", "description", "runbook_url", "dashboard_url", "triage_url", "triage_command"}
)
_COUNTING = ("rate", "increase", "irate", "resets")
_COUNTER = re.compile(r"(_total|_count|_sum|_bucket)$")
# Gauges that end like counters; the last is a histogram of sessions as they are now.
_NO_COUNTER = re.compile(r"^(DCGM_|nvidia_smi_remapped|llmdiag_active_session_)")
# Counters whose own name doesn't say so.
_UNTYPED = ("DCGM_", "nvidia_smi_", "node_vmstat_", "node_netstat_")
_NAME = re.compile(r"(LLM|GPU|IB|KV)([A-Z][A-Za-z0-9]*)")
_TEMPLATE_LABEL = re.compile(r"\$labels\.([a-zA-Z_][a-zA-Z0-9_]*)")
_COMPARISONS = (">", "<", ">=", "<=", "==", "!=")
_EXTERNAL = ("llmdiag_url", "grafana_url")
# What a user may put on every target: dropped by no aggregation of ours, absent on a bare page.
_FREE = frozenset({"cluster"})


def known_labels(recordings: tuple[Rule, ...]) -> Mapping[str, Labels]:
    """What labels each recorded series bears, by name; of several recordings of one name, all."""
    found: dict[str, Labels] = {}
    for rule in recordings:
        own = output_labels(promql.parse(rule.expr), {})
        all_of = None if own is None else own | frozenset(rule.labels)
        before = found.get(rule.record, frozenset())
        found[rule.record] = None if all_of is None or before is None else all_of | before
    return found


def complaints(rule: Rule, known: Mapping[str, Labels]) -> list[str]:
    """Everything that is wrong with ``rule``, one line each."""
    tree = promql.parse(rule.expr)
    found = [*_counters(tree), *_bounds(tree), *_joins(tree, known)]
    if rule.record:
        found += _one_level(rule, known)
    else:
        found += [*_words(rule), *_comparison(tree), *_patience(rule, tree), *_recorded(rule, known)]
        found += _templates(rule, output_labels(tree, known))
    return [f"{rule.alert or rule.record}: {one}" for one in found]


def _words(rule: Rule) -> Iterator[str]:
    if not _NAME.fullmatch(rule.alert):
        yield "a name is CamelCase and begins with LLM, GPU, IB or KV"
    if rule.labels.get("severity") not in SEVERITIES or rule.labels.get("service") != "llm":
        yield f"severity and service are {rule.labels.get('severity')}, {rule.labels.get('service')}"
    if not rule.labels.get("component"):
        yield "no component"
    if set(rule.annotations) != ANNOTATIONS:
        yield f"annotations differ: {sorted(set(rule.annotations) ^ ANNOTATIONS)}"
    summary = rule.annotations.get("summary", "")
    if "{{" in summary or not summary.endswith("."):
        yield "a summary is one static sentence with a full stop"
    if not rule.annotations.get("description", "").rstrip().endswith("."):
        yield "a description ends with a full stop"


def _templates(rule: Rule, labels: Labels) -> Iterator[str]:
    """A label that the expression drops would print as nothing."""
    for name, text in rule.annotations.items():
        if text.count("{{") != text.count("}}"):
            yield f"{name} has an open template"
        for label in _TEMPLATE_LABEL.findall(text):
            if labels is not None and label not in labels | frozenset(rule.labels) | _FREE:
                yield f"{name} reads the label {label}, which the expression drops"
        for label in re.findall(r"\$externalLabels\.(\w+)", text):
            if label not in _EXTERNAL:
                yield f"{name} reads the external label {label}, which nobody is told to set"


def _comparison(tree: Any) -> Iterator[str]:
    """Every branch must be able to be empty, or the alert fires for ever."""
    for branch in _branches(tree):
        if not _can_be_empty(branch) and branch.prettify() != "vector(1)":
            yield f"nothing compares in `{_short(branch)}`"


def _branches(node: Any) -> Iterator[Any]:
    while isinstance(node, promql.ParenExpr):
        node = node.expr
    if isinstance(node, promql.BinaryExpr) and str(node.op) == "or":
        yield from _branches(node.lhs)
        yield from _branches(node.rhs)
    else:
        yield node


def _can_be_empty(node: Any) -> bool:
    match node:
        case promql.ParenExpr() | promql.AggregateExpr():
            return _can_be_empty(node.expr)
        case promql.Call():
            return node.func.name == "absent" or any(_can_be_empty(one) for one in node.args)
        case promql.BinaryExpr():
            if str(node.op) in _COMPARISONS:
                return not (node.modifier and node.modifier.return_bool)
            if str(node.op) == "unless":
                return True
            return _can_be_empty(node.lhs) or (str(node.op) != "or" and _can_be_empty(node.rhs))
    return False


def _patience(rule: Rule, tree: Any) -> Iterator[str]:
    absent = any(isinstance(node, promql.Call) and node.func.name == "absent" for node in _nodes(tree))
    if absent and rule.for_seconds < 300:
        yield "absent() waits for less than five minutes: a restart of Prometheus would fire it"
    if rule.for_seconds % 30 or rule.keep_firing_seconds % 30:
        yield "a wait that is no multiple of the evaluation interval"


def _counters(tree: Any) -> Iterator[str]:
    """A counter's value says nothing; only what it grew does. And a gauge has no rate."""
    inside = {
        id_
        for node in _nodes(tree)
        if isinstance(node, promql.Call) and node.func.name in _COUNTING
        for id_ in _selected(node.args[0])
    }
    for node in _nodes(tree):
        if isinstance(node, promql.VectorSelector) and node.name:
            counts = _COUNTER.search(node.name) and not _NO_COUNTER.search(node.name)
            if counts and node.prettify() not in inside and not _only_counted(tree, node):
                yield f"{node.name} is a counter, and nothing takes its rate"
    for name in inside:
        bare = name.split("{")[0].split("[")[0].split(" ")[0]
        if not _COUNTER.search(bare) and not bare.startswith(_UNTYPED) and "start_time" not in bare:
            yield f"{bare} is no counter, and something takes its rate"


def _only_counted(tree: Any, selector: Any) -> bool:
    """``absent(x)``, ``count(x)``, ``x unless x offset 10m`` ask whether it is there, not how much."""
    for node in _nodes(tree):
        asks = (
            isinstance(node, promql.Call)
            and node.func.name in ("absent", "present_over_time", "last_over_time")
        ) or (isinstance(node, promql.AggregateExpr) and str(node.op) in ("count", "group"))
        if asks and selector.prettify() in node.prettify():
            return True
        filters = isinstance(node, promql.BinaryExpr) and str(node.op) in ("unless", "and")
        if filters and selector.prettify() in node.rhs.prettify():
            return True
    return False


def _selected(node: Any) -> Iterator[str]:
    for one in _nodes(node):
        if isinstance(one, promql.VectorSelector):
            yield one.prettify()
        elif isinstance(one, promql.MatrixSelector):
            yield one.vector_selector.prettify()


def _bounds(tree: Any) -> Iterator[str]:
    for node in _nodes(tree):
        if isinstance(node, promql.VectorSelector):
            bound = given_labels(node).get("le", "+Inf")
            if bound != "+Inf" and "." not in bound:
                yield f'le="{bound}" has no dot: Prometheus 3 writes it with one, as clients do'
        if isinstance(node, promql.MatrixSelector) and node.range.total_seconds() < 120:
            yield f"a look-back of {node.range} holds fewer than two scrapes of a slow exporter"


def _joins(tree: Any, known: Mapping[str, Labels]) -> Iterator[str]:
    """Without on() and ignoring(), two sides meet only where all their labels are equal."""
    for node in _nodes(tree):
        if not isinstance(node, promql.BinaryExpr) or matched(node) is not None or str(node.op) == "or":
            continue
        left, right = output_labels(node.lhs, known), output_labels(node.rhs, known)
        if _is_scalar(node.lhs) or _is_scalar(node.rhs) or left is None or right is None:
            continue
        if left != right:
            yield f"`{_short(node)}` joins {sorted(left ^ right)}, which one side lacks"


def _is_scalar(node: Any) -> bool:
    match node:
        case promql.NumberLiteral():
            return True
        case promql.ParenExpr() | promql.UnaryExpr():
            return _is_scalar(node.expr)
        case promql.BinaryExpr():
            return _is_scalar(node.lhs) and _is_scalar(node.rhs)
        case promql.Call():
            return node.func.name in ("time", "scalar")
    return False


def _one_level(rule: Rule, known: Mapping[str, Labels]) -> Iterator[str]:
    for name in metric_names(rule.expr) & set(known):
        yield f"reads {name}, another recording: back-filling it would find nothing"


def _recorded(rule: Rule, known: Mapping[str, Labels]) -> Iterator[str]:
    for name in metric_names(rule.expr):
        level = name.split(":")[0]
        if level in ("llm", "gpu", "host", "fabric", "requests") and ":" in name and name not in known:
            yield f"reads {name}, which nothing records"


def _nodes(tree: Any) -> list[Any]:
    found: list[Any] = []

    def visit(node: Any) -> None:
        found.append(node)

    promql.walk(tree, visit)
    return found


def _short(node: Any) -> str:
    text = " ".join(node.prettify().split())
    return text if len(text) <= 90 else text[:87] + "…"
