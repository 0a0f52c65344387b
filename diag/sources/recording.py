"""Record a window from any sources into a bundle that gives the same answer offline."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from diag.errors import NoData
from diag.model import Event, Window
from diag.signals.frame import RawSeries
from diag.sources.attached import all_attachments, component_of, read_marked_events, read_records
from diag.sources.hiding import HostNames, without_secrets
from diag.sources.planning import planned
from diag.sources.protocol import Attachments, Question, Source
from diag.sources.times import rfc3339, spoken
from diag.sources.writing import BundleText, write_bundle

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["record"]

_BEFORE_SECONDS = 60.0
_HOST_COLUMNS = ("instance",)


def record(
    sources: Sequence[Source],
    question: Question,
    path: Path | str,
    *,
    hash_hosts: bool = False,
    salt: bytes | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write the question's window to ``path`` (``.zip``, ``.tar.gz``, else a folder); return it.

    Raw samples reach back far enough that the first rates are whole; bundle.json keeps the window
    that was asked for. Request records are written in the agreed format, joined with spans; logs
    lose prompt text, keys and tokens. ``salt`` fixes the hashes of host names, for tests.
    Raises ``NoData`` when there is nothing to record and ``BundleError`` when ``path`` can't be written.
    """
    say = progress or (lambda _text: None)
    plan = planned(sources, question)
    span = Window(plan.grid.start - max(_BEFORE_SECONDS, plan.grid.window), plan.window.end)
    hosts = HostNames(salt) if hash_hosts else None
    say("fetching raw samples")
    raw = [one for source in sources for one in source.raw(span, question.matchers)]
    raw = list(_once(raw))
    if hosts is not None:
        for one in raw:
            hosts.learn(one.labels)
    attached = all_attachments([source.attachments() for source in sources], question)
    requests, _ = read_records(attached, question, plan.window)
    if not raw and requests is None:
        raise NoData(f"nothing to record from {spoken(plan.window)}", hint="check the window and --match")
    if hosts is not None and requests is not None:
        hosts.learn_all(requests["instance"].dropna().unique())
    say("writing the bundle")
    incident = question.incident or next((found for source in sources if (found := source.marked()[1])), None)
    return write_bundle(
        path, raw,
        window=plan.window, step_seconds=plan.scrape_seconds or plan.grid.step, incident=incident,
        notes=f"recorded by llm-diag at {rfc3339(question.now)}",
        text=_text(attached, requests, hosts), hosts=hosts,
    )  # fmt: skip


def _once(raw: Iterable[RawSeries]) -> Iterator[RawSeries]:
    """The first source's series where two hold the same labels."""
    seen: set[tuple[tuple[str, str], ...]] = set()
    for one in raw:
        key = tuple(sorted(one.labels.items()))
        if key not in seen:
            seen.add(key)
            yield one


def _text(attached: Attachments, requests: pd.DataFrame | None, hosts: HostNames | None) -> BundleText:
    files: dict[str, Iterable[str]] = {}
    if requests is not None:
        files["requests/requests.jsonl"] = _request_lines(requests, hosts)
    for path in attached.logs:
        component = component_of(path)
        name = hosts.text(component) if hosts else component
        files[_free(files, f"logs/{name}.log")] = without_secrets(_lines(path))
    events, _ = read_marked_events(attached)
    return BundleText(files, [_clean(event) for event in events])


def _request_lines(requests: pd.DataFrame, hosts: HostNames | None) -> Iterator[str]:
    columns = [name for name in requests.columns if name != "source"]
    encoder = msgspec.json.Encoder()
    for row in requests[columns].itertuples(index=False, name=None):
        # NaN is the only value that differs from itself; unknown fields are left out of the line.
        known = {
            name: value
            for name, value in zip(columns, row, strict=True)
            if value is not None and value == value
        }
        if hosts is not None:
            known.update({name: hosts.name(str(known[name])) for name in _HOST_COLUMNS if name in known})
        yield encoder.encode(known).decode()


def _clean(event: Event) -> Event:
    return Event(
        event.time, event.kind, event.target, next(iter(without_secrets([event.text]))), event.marked
    )


def _lines(path: Path) -> Iterator[str]:
    with (
        (
            gzip.open(path, "rt", encoding="utf-8", errors="replace")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8", errors="replace")
        ) as file,
        suppress(EOFError, zlib.error, gzip.BadGzipFile),
    ):
        for line in file:
            yield line.rstrip("\n")


def _free(taken: dict[str, Iterable[str]], name: str) -> str:
    stem, number = name.removesuffix(".log"), 2
    while name in taken:
        name, number = f"{stem}-{number}.log", number + 1
    return name
