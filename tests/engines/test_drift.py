"""Engine files against recorded pages and against the names read from the engines' sources.

``captures/`` holds pages (their sources stand in their first lines) and, for vLLM and SGLang, which
name was seen in which release. A definition that claims to be verified must be computable from names
on recorded pages; one that doesn't must not be, so that the claim cannot go stale either way.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from diag.engines import ENGINES, Definition
from diag.signals import SIGNALS
from diag.signals.algebra import (
    Aggregate,
    Binary,
    Bit,
    Clamp,
    Expr,
    FirstOf,
    Gauge,
    Increase,
    Keep,
    Quantile,
    Rate,
    Scale,
    Select,
    Unless,
    selects,
    spellings,
)

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)[{ ]", re.MULTILINE)
_SUFFIX = re.compile(r"(_total)?(_bucket|_sum|_count)?$")
_DEFINED = [
    pytest.param(engine.name, definition, id=f"{engine.name}-{name}")
    for engine in ENGINES
    for name, definition in engine.signals.items()
    if isinstance(definition, Definition)
]
_NAMES = sorted({(e.name, n) for e in ENGINES for d in e.signals.values()
                 if isinstance(d, Definition) for s in selects(d.expr) for n in s.names})  # fmt: skip
_VERSIONED = [pair for pair in _NAMES if pair[1].startswith(("vllm:", "sglang:"))]
# Known from SGLang's documentation of early 0.4, before the first release that was read.
_OLDER_THAN_READ = "sglang:time_per_output_token_seconds"
_FIRST_RELEASE = {"vllm": "0.2.7", "sglang": "0.4.6"}


@pytest.fixture(scope="session")
def captures(checkout: Path) -> Path:
    return checkout / "tests" / "captures"


@pytest.fixture(scope="session")
def on_pages(captures: Path, recorded_names: frozenset[str]) -> frozenset[str]:
    pages = [path.read_text() for path in captures.glob("*.prom")]
    return recorded_names | {name for page in pages for name in _SAMPLE.findall(page)}


@pytest.fixture(scope="session")
def lives(captures: Path) -> dict[str, str]:
    """For each name in the sources: the first release it was seen in."""
    first: dict[str, str] = {}
    for path in captures.glob("*_names_by_version.tsv"):
        with path.open() as lines:
            for row in csv.DictReader(lines, delimiter="\t"):
                first[row["name_in_source"]] = row["first_seen"]
    return first


def _recorded(expr: Expr, pages: frozenset[str]) -> bool:
    def shown(chosen: Select, suffix: str = "") -> bool:
        return any(s + suffix in pages for name in chosen.names for s in spellings(name))

    match expr:
        case Gauge() | Rate() | Increase():
            return shown(expr.select)
        case Quantile():
            return shown(expr.select, "_bucket")
        case Aggregate() | Scale() | Clamp() | Bit() | Keep() | Unless():
            return _recorded(expr.expr, pages)
        case Binary():
            return _recorded(expr.left, pages) and _recorded(expr.right, pages)
        case FirstOf():
            return any(_recorded(part, pages) for part in expr.exprs)


@pytest.mark.parametrize(("producer", "definition"), _DEFINED)
def test_verified_means_shown_on_a_recorded_page(producer: str, definition: Definition, on_pages) -> None:
    assert _recorded(definition.expr, on_pages) == definition.verified, producer


@pytest.mark.parametrize(("producer", "name"), _VERSIONED)
def test_every_name_was_read_in_the_engines_sources(producer: str, name: str, lives: dict[str, str]) -> None:
    if name.startswith(_OLDER_THAN_READ):
        assert _in_source(name, lives) is None, "read after all: remove the exception"
        return
    assert _in_source(name, lives), f"{producer}: no release read has {name}"


def _in_source(name: str, lives: dict[str, str]) -> str | None:
    base = _SUFFIX.sub("", name)
    kept = re.sub(r"(_bucket|_sum|_count)$", "", name)
    # A counter is exposed with "_total" whether or not its source name has it.
    found = [lives[spelled] for spelled in (name, kept, base, f"{base}_total") if spelled in lives]
    return min(found, key=_version, default=None)


@pytest.mark.parametrize(("producer", "definition"), [p for p in _DEFINED if p.values[0] in _FIRST_RELEASE])
def test_since_is_no_earlier_than_the_sources_say(
    producer: str, definition: Definition, lives: dict[str, str]
) -> None:
    seen = [_in_source(n, lives) for s in selects(definition.expr) for n in s.names if ":" in n]
    dated = [_version(first) for first in seen if first]
    if dated:
        assert _version(definition.since) >= min(dated), f"{producer}: in no release before {min(dated)}"
    assert _version(definition.since) >= _version(_FIRST_RELEASE[producer])


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def test_every_signal_name_is_in_the_vocabulary() -> None:
    unknown = {name for engine in ENGINES for name in engine.signals if name not in SIGNALS}
    assert unknown == set()


_PAGES = {
    "vllm_0.32.0_kv_pressure.prom": "vllm",
    "vllm_v1_0.8.0_no_engine_label.prom": "vllm",
    "sglang_recent_labels.prom": "sglang",
    "dcgm_exporter_mixed.prom": "dcgm",
    "nvidia_gpu_exporter_h200_load.prom": "nvidia_gpu_exporter",
    "llmdiag_demo.prom": "llmdiag",
    "llmdiag_sessions.prom": "llmdiag",
}


@pytest.mark.parametrize(("page", "producer"), _PAGES.items())
def test_each_page_answers_its_own_engines_probe_only(captures: Path, page: str, producer: str) -> None:
    names = set(_SAMPLE.findall((captures / page).read_text()))
    assert {e.name for e in ENGINES if names.intersection(e.probe.names)} - {"process"} == {producer}
