"""Fills what is generated in a runbook: its front matter and the block "How diag decides".

The rest of a runbook is written by hand. The front matter comes from the alerts and the signals a
hypothesis needs; the block from its card, its needs and the weights of its cues. A cue whose weight
changed therefore shows in the runbook's diff.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from diag.assets.rules.catalogue import ALERTS, FILES
from diag.assets.rules.model import Alert
from diag.assets.rules.recordings import recorded
from diag.assets.symptoms import SYMPTOMS, Symptom
from diag.engines import ENGINES, Definition
from diag.hypotheses import CARDS, needs
from diag.model import Card
from diag.signals import SIGNALS
from diag.signals.vocabulary import Scope
from diag.triage.rank import SUPPORT
from diag.triage.weights import WEIGHTS, Weight

__all__ = [
    "BEGIN",
    "END",
    "SECTIONS",
    "body",
    "decision_block",
    "filled",
    "front_matter",
    "page_ids",
    "producers",
    "stale_runbooks",
]

SECTIONS = (
    "What fired",
    "What it is not",
    "User impact",
    "First command",
    "By hand",
    "Causes and how to tell them apart",
    "Stop the bleeding",
    "Fix",
    "Verify it is over",
    "Escalate with what",
    "Known false alarms",
    "How diag decides",
    "Sources",
)
"""Every runbook's sections, in order."""

BEGIN = "<!-- generated from diag/hypotheses and diag/triage/weights.py by `make generate`: begin -->"
END = "<!-- generated: end -->"

_WIDTH = 98
_SEVERITIES = ("critical", "warning", "info", "none")

# Component, dashboards and the hypotheses that live there; the rest are the engine's.
_FAMILIES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("requests", ("sessions",), ("context_growth", "abandoned_requests")),
    ("requests", ("engine",), ("long_outputs",)),
    ("requests", ("incident",), ("network_latency", "proxy_limit", "client_limit")),
    ("cache", ("cache",), ("kv_cache_exhaustion", "kv_block_leak")),
    ("cache", ("cache", "sessions"), ("prefix_cache_off", "prefix_cache_broken", "prefix_cache_scattered")),
    ("queue", ("engine",), ("load_burst", "head_of_line_blocking", "sequence_limit", "routing_hotspot")),
    ("queue", ("tenants",), ("tenant_dominance",)),
    ("fabric", ("fabric",), ("fabric_flap", "kv_transfer_failure", "stale_cache_peer")),
    ("gpu", ("gpu",), ("thermal_throttle", "power_cap", "noisy_neighbour", "gpu_hardware_fault")),
    ("gpu", ("gpu",), ("gpu_link_degraded", "slow_gpu", "numa_misplacement")),
    ("host", ("incident",), ("host_cpu_starvation", "host_memory_leak")),
    ("meta", ("incident",), ("telemetry_fault", "unknown")),
)
_PLACES = {id: (component, dashboards) for component, dashboards, ids in _FAMILIES for id in ids}


def page_ids() -> tuple[str, ...]:
    """The ids of all runbooks: hypotheses in their own order, ``unknown``, then the symptoms."""
    return (*CARDS, *SYMPTOMS)


def front_matter(id: str) -> str:
    """The YAML head of runbook ``id``: alerts that lead here, their severity, and what is needed."""
    here = [one for one in ALERTS if one.runbook == id]
    through = [one for one in ALERTS if id in one.causes and one.runbook != id]
    component, dashboards = _place(id, here)
    rows = {
        "id": id,
        "kind": "symptom" if id in SYMPTOMS else "hypothesis",
        "alerts": _inline(one.name for one in here),
        "seen_through": _inline(one.name for one in through),
        "severity": min((one.severity for one in here), key=_SEVERITIES.index, default="none"),
        "component": component,
        "dashboards": _inline(f"llmdiag-{name}" for name in dashboards),
        "needs": _inline(f'"{need}"' for need in _needed(id, here)),
    }
    return "".join(["---\n", *(f"{key}: {value}\n" for key, value in rows.items()), "---\n"])


def decision_block(id: str) -> str:
    """What stands between the markers of runbook ``id``, markers included."""
    lines = _symptom_lines(SYMPTOMS[id]) if id in SYMPTOMS else _hypothesis_lines(CARDS[id])
    return "\n".join([BEGIN, "", *lines, "", END])


def filled(text: str, id: str) -> str:
    """``text`` with front matter and block as they are now; ``ValueError`` where it has no block."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"runbooks/{id}.md needs one block marked as generated")
    return front_matter(id) + "\n" + pattern.sub(lambda _: decision_block(id), body(text))


def body(text: str) -> str:
    """``text`` without its front matter."""
    return re.sub(r"\A---\n.*?\n---\n", "", text, count=1, flags=re.DOTALL).lstrip("\n")


def stale_runbooks(root: Path, *, write: bool = False) -> list[str]:
    """The runbooks under ``root`` whose generated parts are stale; with ``write``, those rewritten."""
    changed: list[str] = []
    for id in page_ids():
        path = root / "runbooks" / f"{id}.md"
        before = path.read_text(encoding="utf-8")
        after = filled(before, id)
        if after == before:
            continue
        changed.append(f"runbooks/{path.name}")
        if write:
            path.write_text(after, encoding="utf-8")
    return changed


def producers(name: str) -> tuple[str, ...]:
    """Who delivers what a hypothesis needs: engine files for a signal, else what else can tell it."""
    kind, _, rest = name.partition(":")
    if kind == "fact":
        return ("log", *(engine.name for engine in ENGINES if rest in engine.facts))
    if kind == "event":
        return ("log",) if rest == "xid" else ("events",)
    known = tuple(e.name for e in ENGINES if isinstance(e.signals.get(name), Definition))
    return (*known, "requests") if SIGNALS[name].scope is Scope.REQUESTS else known


def _place(id: str, here: list[Alert]) -> tuple[str, tuple[str, ...]]:
    if id in SYMPTOMS:
        component, dashboards = SYMPTOMS[id].component, SYMPTOMS[id].dashboards
    else:
        component, dashboards = _PLACES.get(id, ("engine", ("engine",)))
    named = (one.dashboard for one in here)
    return (here[0].component if here else component), tuple(dict.fromkeys((*named, *dashboards)))


def _needed(id: str, here: list[Alert]) -> tuple[str, ...]:
    """For a symptom what its alerts need; for a hypothesis what its judgement does."""
    if id in SYMPTOMS:
        return tuple(dict.fromkeys(need for one in here for need in one.needs))
    groups = ("|".join(dict.fromkeys(p for name in group for p in producers(name))) for group in needs(id))
    return tuple(dict.fromkeys(groups))


def _inline(values: Iterator[str]) -> str:
    return "[" + ", ".join(values) + "]"


def _hypothesis_lines(card: Card) -> Iterator[str]:
    groups = needs(card.id)
    if not groups:
        yield from _wrapped(
            f"Judged last: it leads when there is a symptom and nothing else stands. {card.next_check}"
        )
        return
    yield from _wrapped("It is judged where one signal of each line is there; else it is not assessable.")
    yield ""
    yield from (line for group in groups for line in _item(" or ".join(map(_need, group))))
    yield ""
    yield from _wrapped(
        "Cues, and by what factor each moves the odds when it comes true / when it does not. Without a "
        f"*driver* it is never supported (which takes {SUPPORT * 100:.0f} %); *root* cues only tell a root "
        "from a consequence; of one *group* the strongest counts."
    )
    yield ""
    for cue, weight in WEIGHTS[card.id].items():
        yield from _item(f"`{cue}`: {_odds(weight)}. {_sentence(weight.reason)}{_marks(weight)}")
    yield ""
    yield from _wrapped(
        "Its chain in our recordings, one name for every engine: " + " → ".join(_recorded(card)) + "."
    )
    yield ""
    yield from _wrapped("Rules it out: " + "; ".join(card.rules_out) + ".")
    if card.leads_to:
        yield ""
        yield from _wrapped("Told as its consequences: " + ", ".join(f"`{id}`" for id in card.leads_to) + ".")
    yield ""
    yield from _wrapped(f"Next measurement: {card.next_check}")


def _recorded(card: Card) -> Iterator[str]:
    """The series that carry ``card``'s chain once our recordings are loaded."""
    there = {recording.record for file in FILES for recording in file.recordings}
    for name in card.chain:
        series = "up" if SIGNALS[name].scope is Scope.TARGET else recorded(name)
        if series == "up" or series in there:
            yield f"`{series}`"


def _symptom_lines(symptom: Symptom) -> Iterator[str]:
    yield from _wrapped(
        "No symptom is a cause. `diag triage` judges every hypothesis on the same window; these are the ones "
        "that this symptom leads to most often, each with what makes it possible:"
    )
    yield ""
    for id in symptom.causes:
        drivers = [_first(w.reason) for w in WEIGHTS[id].values() if w.driver]
        yield from _item(f"`{id}`: {CARDS[id].title}. Without this never supported: {' or '.join(drivers)}.")


def _need(name: str) -> str:
    shown = name.replace(":", " ").replace("_", " ") if ":" in name else f"`{name}`"
    return f"{shown} ({', '.join(producers(name))})"


def _odds(weight: Weight) -> str:
    return f"×{weight.when_true:g} / ÷{1 / weight.when_false:.3g}"


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:] + "."


def _first(reason: str) -> str:
    return reason.partition(":")[0]


def _marks(weight: Weight) -> str:
    marks = [name for name, on in (("driver", weight.driver), ("root", weight.root)) if on]
    if weight.group:
        marks.append(f"group {weight.group}")
    return f" *{', '.join(marks)}*" if marks else ""


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> list[str]:
    return wrap(f"- {text}", _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
