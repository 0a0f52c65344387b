"""What the exporter shows and what triage reads of it, in both directions.

The two share no code: they meet on the wire, and here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from diag.engines.llmdiag import LLMDIAG
from diag.engines.registry import Definition
from diag.signals.algebra import Aggregate, Binary, Clamp, Expr, FirstOf, Gauge, Rate, Scale, Select
from diag_exporter.families import Family
from diag_exporter.reference import documented, entries

FAMILIES = {entry.family.name: entry.family for some in entries().values() for entry in some}

# Not read by triage, by what they are for. A family that is neither mapped nor here fails a test.
OTHER_USES = {
    "the exporter and its parts about themselves": (
        r"llmdiag_(up|(exporter|snapshot|collector|nvml|feed|proxy)_.*)"
    ),
    "identity, for people and joins": r"llmdiag_gpu_(info|process_info)",
    "alert rules: hardware that fails or is lost": (
        r"llmdiag_gpu_(up|expected|visible|reset_required|recovery_action|event_total|xid_total"
        r"|xid_last_timestamp_seconds|retired_pages.*|remapped_rows_total|row_remap_.*)"
    ),
    "alert rules: links and places": (
        r"llmdiag_(gpu_(pcie|nvlink)_.*|gpu_numa_node|engine_numa_match|engine_cpus_local_ratio)"
    ),
    "dashboards: details of a card": (
        r"llmdiag_gpu_(memory_clock.*|memory_utilization_ratio|memory_total_bytes|memory_reserved_bytes"
        r"|temperature_(margin|slowdown|shutdown)_celsius|memory_temperature_max_celsius|power_default_limit_watts"
        r"|energy_joules_total|persistence_mode|clock_event_refused_total|mig_.*)"
    ),
    "dashboards: who is on a card (the sums are mapped)": (
        r"llmdiag_gpu_(process_.*|processes|pid_namespace_mismatch)"
    ),
    "alert rules and dashboards: engines": r"llmdiag_(engine|model)_.*",
    "alert rules and dashboards: sessions and tenants (of the rest triage reads request records)": (
        r"llmdiag_(active|request|session|sessions|ttft|queue|repeat|prompt|cache|aborted|tokens|tenant)_.*"
    ),
}


def _used(expr: Expr) -> Iterator[tuple[type, Select]]:
    match expr:
        case Gauge() | Rate():
            yield type(expr), expr.select
        case Aggregate() | Clamp() | Scale():
            yield from _used(expr.expr)
        case Binary():
            yield from (*_used(expr.left), *_used(expr.right))
        case FirstOf():
            for part in expr.exprs:
                yield from _used(part)
        case _:
            pytest.fail(f"{type(expr).__name__} is not looked into here")


READ = [
    (name, kind, one)
    for name, definition in LLMDIAG.signals.items()
    if isinstance(definition, Definition)
    for kind, one in _used(definition.expr)
]
USED = [pytest.param(kind, one, id=f"{name}-{one.names[0]}") for name, kind, one in READ]
NUMBERS = {name for one in LLMDIAG.numbers.values() for name in one.names}
MAPPED = {name for _, _, one in READ for name in one.names} | NUMBERS | set(LLMDIAG.probe.names)


@pytest.mark.parametrize(("kind", "one"), USED)
def test_what_is_read_is_shown_with_these_labels(kind: type, one: Select) -> None:
    for name in one.names:
        family = FAMILIES[name]
        assert family.default, "triage must not depend on a profile"
        assert (family.kind == "counter") == name.endswith("_total")
        assert kind is Gauge or family.kind == "counter"
        assert {matcher.label for matcher in one.where} <= set(family.labels)
        if name.startswith("llmdiag_gpu_"):
            assert {"uuid", "gpu"} <= set(family.labels)


@pytest.mark.parametrize(("kind", "one"), USED)
def test_conditions_are_met_by_values_on_a_page(kind: type, one: Select, captures: str) -> None:
    del kind
    for matcher in one.where:
        values = set(re.findall(rf'^{one.names[0]}\{{.*\b{matcher.label}="([^"]+)"', captures, re.MULTILINE))
        wanted = re.compile(matcher.value)
        assert any(wanted.fullmatch(value) for value in values), (matcher, values)


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_a_number_that_is_a_fact_is_a_gauge_of_an_engine(name: str) -> None:
    assert FAMILIES[name].kind == "gauge"
    assert "engine" in FAMILIES[name].labels


def test_whatever_is_shown_is_read_or_has_another_use() -> None:
    unused = {
        name
        for name in FAMILIES
        if name not in MAPPED and not any(re.fullmatch(pattern, name) for pattern in OTHER_USES.values())
    }
    assert unused == set()


@pytest.mark.parametrize("pattern", OTHER_USES.values(), ids=OTHER_USES.keys())
def test_no_other_use_is_left_over(pattern: str) -> None:
    assert any(re.fullmatch(pattern, name) for name in FAMILIES)


@pytest.fixture(scope="session")
def captures(checkout: Path) -> str:
    tests = checkout / "tests"
    pages = ("captures/llmdiag_demo", "captures/llmdiag_sessions", "exporters/gpu/golden/h200_idle")
    return "".join((tests / f"{page}.prom").read_text() for page in pages)


def test_the_kept_page_has_no_name_that_is_gone(captures: str) -> None:
    names = {line.split()[2] for line in captures.splitlines() if line.startswith("# TYPE ")}
    assert names
    assert names <= set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_family_keeps_the_rules_of_naming(family: Family) -> None:
    assert re.fullmatch(r"llmdiag_[a-z][a-z0-9_]*", family.name)
    assert family.help
    assert (family.kind == "counter") == family.name.endswith("_total")
    assert (family.kind == "info") == family.name.endswith("_info")
    assert not re.search(r"_(percent|ms|mhz|mib|milli\w*|count|p\d\d)$", family.name)
    # A session or a request as a label would grow without end; a pid only where asked for, of the largest.
    assert not {"session", "session_id", "request", "request_id", "le", "job", "instance"} & set(
        family.labels
    )
    assert "pid" not in family.labels or not family.default
    assert family.source


def test_one_name_is_one_family() -> None:
    names = [entry.family.name for some in entries().values() for entry in some]
    assert sorted(names) == sorted(set(names))


def test_the_documented_series_are_current(checkout: Path) -> None:
    text = (checkout / "docs" / "exporter.md").read_text("utf-8")
    assert documented(text) == text, "run `make generate`"
