"""What a store would see of our rules and panels, in titled sections of two columns and as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby

from diag.assets.checking import Checked, Expectation, Loaded, Sight
from diag.assets.listing import Section
from diag.assets.owners import SERVING
from diag.assets.reasons import Reason
from diag.assets.rules.yaml_text import needs_text
from diag.engines import engine
from diag.quantities import clock, day, span

__all__ = ["SCHEMA", "context", "data", "headline", "sections"]

SCHEMA = "diag.assets_check/1"

_NAMED_AT_MOST = 6


def headline(checked: Checked) -> str:
    """How many alerts can fire here at all, and how many panels show something."""
    alerts = checked.of("alert")
    sees = len(checked.of("alert", "sees"))
    rest = [
        (len(checked.of("alert", "blind")), "blind"),
        (len(checked.of("alert", "waiting")), "with nothing to see yet"),
        (len(checked.of("alert", "no_producer")), "without an exporter"),
    ]
    told = [f"{count} {what}" for count, what in rest if count]
    first = f"{sees} of {len(alerts)} alerts see what they judge" + (f"; {', '.join(told)}." if told else ".")
    panels = checked.of("panel")
    return f"{first} {len(checked.of('panel', 'sees'))} of {len(panels)} panels show something."


def context(checked: Checked) -> str:
    """Where and when it was looked, and who is there."""
    window = f"{day(checked.start)} {clock(checked.start)} to {clock(checked.end)} UTC"
    here = ", ".join(engine(name).title for name in checked.producers) or "no exporter that we know"
    return f"{checked.url}, {window} ({span(checked.end - checked.start)}); scraped: {here}"


def sections(checked: Checked) -> Iterator[Section]:
    """The console's sections, what needs a hand first."""
    yield "Blind alerts", list(_by_reason(checked.of("alert", "blind")))
    yield "Set-up", list(_set_up(checked))
    yield "Blind recordings", list(_by_reason(checked.of("recording", "blind")))
    yield "Panels", list(_panels(checked))
    yield "Nothing to see yet", list(_by_reason(checked.of("alert", "waiting")))
    yield "Not for this store", list(_absent(checked))
    yield "Notes", [("", text) for text in checked.notes]


def _by_reason(sights: Iterable[Sight]) -> Iterator[tuple[str, str]]:
    """Names that share their reasons, in one row."""
    for names, text in _grouped(sights):
        yield ", ".join(names), text


def _grouped(sights: Iterable[Sight]) -> Iterator[tuple[list[str], str]]:
    found: dict[str, dict[str, None]] = {}
    for one in sights:
        found.setdefault("; ".join(_clauses(one.reasons)), {})[_name(one.what)] = None
    for text, names in found.items():
        yield list(names), text


def _clauses(reasons: Sequence[Reason]) -> Iterator[str]:
    """The reasons as clauses; metrics that one producer lacks in one of them."""
    lacking: dict[str, list[Reason]] = {}
    nobody: list[str] = []
    for reason in reasons:
        if reason.kind in ("metric_absent", "feature_off") and reason.text.endswith(f" {reason.about}"):
            lacking.setdefault(reason.text.removesuffix(reason.about), []).append(reason)
        elif reason.kind == "producer_absent":
            nobody += reason.about.split("|")
        else:
            yield reason.text
    for lead, several in lacking.items():
        parts = [part for one in several for part in one.note.split("; ") if part]
        notes = "; ".join(dict.fromkeys(parts))
        yield lead + _some([one.about for one in several]) + (f" ({notes})" if notes else "")
    # Beside what another engine here lacks, an engine that nobody runs is no news; an exporter is advice.
    if any(reason.kind != "producer_absent" for reason in reasons):
        nobody = [name for name in nobody if name not in SERVING]
    if nobody:
        yield f"no {_titles('|'.join(dict.fromkeys(nobody)))} is scraped"


def _name(one: Expectation) -> str:
    return f"{one.name} ({one.producer})" if one.producer else one.name


def _set_up(checked: Checked) -> Iterator[tuple[str, str]]:
    if checked.labels_missing is None:
        yield "external labels", "this store does not show its configuration"
    for label in checked.labels_missing or ():
        what = "runbooks and triage" if label == "llmdiag_url" else "dashboards"
        yield (
            f"no external label {label}",
            f"links from alerts to {what} lead nowhere (global.external_labels)",
        )
    if checked.loaded is None:
        yield "rules", "this store does not tell which rules it has loaded"
    for one in checked.loaded or ():
        if _is_for_here(one, checked):
            yield from _loading(one)


def _is_for_here(one: Loaded, checked: Checked) -> bool:
    """Whether a file has a rule that something here could feed."""
    return any(sight.what.home == one.path and sight.state != "no_producer" for sight in checked.sights)


def _loading(one: Loaded) -> Iterator[tuple[str, str]]:
    if one.missing:
        all_of_it = len(one.missing) == one.total
        yield f"rules/{one.path}", "not loaded" if all_of_it else f"not loaded: {_some(one.missing)}"
    for name, error in one.failing:
        yield name, f"its evaluation fails: {error}"
    if one.other_release:
        yield f"rules/{one.path}", f"from another release, or edited: {_some(one.other_release)}"


def _panels(checked: Checked) -> Iterator[tuple[str, str]]:
    for home, several in groupby(checked.of("panel"), key=lambda one: one.what.home):
        own = list(several)
        seen = sum(one.state == "sees" for one in own)
        yield home, f"{seen} of {len(own)} show something"
        for titles, text in _grouped(one for one in own if one.state != "sees"):
            yield "", f"{text}: {'; '.join(titles)}"


def _absent(checked: Checked) -> Iterator[tuple[str, str]]:
    """What nobody here could feed, by the exporter that would."""
    grouped: dict[str, list[Sight]] = {}
    for one in (*checked.of("alert", "no_producer"), *checked.of("recording", "no_producer")):
        lacking = tuple(reason.about for reason in one.reasons)
        # What the store writes itself is missing only together with the target that it is about.
        named = tuple(entry for entry in lacking if entry != "process") or lacking
        grouped.setdefault(", and ".join(_titles(entry) for entry in named), []).append(one)
    for names, sights in grouped.items():
        alerts = [one.what.name for one in sights if one.what.kind == "alert"]
        count = len(sights) - len(alerts)
        parts = [_some(alerts) if alerts else "", f"{count} recording{'s' * (count != 1)}" if count else ""]
        yield f"no {names}", ", ".join(filter(None, parts))


def _titles(about: str) -> str:
    """``llmdiag sessions|dcgm`` -> ``diag-exporter sessions or dcgm-exporter``."""
    named = (entry.partition(" ") for entry in about.split("|"))
    return " or ".join(f"{needs_text((name,))}{space}{part}" for name, space, part in named)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_AT_MOST} more" if len(names) > _NAMED_AT_MOST else ""
    return ", ".join(names[:_NAMED_AT_MOST]) + more


def data(checked: Checked) -> dict[str, object]:
    """The whole answer as plain data; unknown is null."""
    return {
        "schema": SCHEMA,
        "source": checked.url,
        "window": [checked.start, checked.end],
        "producers": checked.producers,
        "alerts": [_sight(one, "file") for one in checked.of("alert")],
        "recordings": [_sight(one, "file") for one in checked.of("recording")],
        "panels": [_sight(one, "dashboard") for one in checked.of("panel")],
        "files": None if checked.loaded is None else [_file(one) for one in checked.loaded],
        "external_labels_missing": checked.labels_missing,
        "notes": checked.notes,
    }


def _sight(one: Sight, home: str) -> dict[str, object]:
    where = f"rules/{one.what.home}" if home == "file" else one.what.home
    found: dict[str, object] = {"name": one.what.name, home: where, "state": one.state}
    if one.what.producer:
        found["producer"] = one.what.producer
    return {**found, "reasons": [_reason(reason) for reason in one.reasons]}


def _reason(reason: Reason) -> dict[str, str]:
    return {name: str(value) for name, value in asdict(reason).items()}


def _file(one: Loaded) -> dict[str, object]:
    return {
        "path": f"rules/{one.path}",
        "rules": one.total,
        "loaded": one.total - len(one.missing),
        "not_loaded": one.missing,
        "failing": [{"name": name, "error": error} for name, error in one.failing],
        "other_release": one.other_release,
    }
