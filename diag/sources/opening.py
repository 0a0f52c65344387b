"""Which door a reference means: a query API, a bare page, or a bundle. URLs are found out by asking."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from diag.errors import NotPrometheus, SourceError, UsageError

if TYPE_CHECKING:
    from diag.sources.access import Access
    from diag.sources.protocol import Question, Source

__all__ = ["Opening", "open_all", "open_source", "store_address", "unknown_label"]

_PASTED = re.compile(r"/(?:graph|api/v1(?:/.*)?)$")
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9.\-]+:\d+(?:/.*)?")
_LABELS_FROM_SECONDS = 120.0
_NAMED_AT_MOST = 12


@dataclass(frozen=True, slots=True)
class Opening:
    """How sources are opened. ``progress`` gets a line of text while pages are scraped."""

    access: Access | None = None
    scrape_for_seconds: float = 120.0
    progress: Callable[[str], None] | None = None


def open_source(ref: str, options: Opening | None = None) -> Source:
    """The source behind ``ref``, an http(s) URL or the path of a bundle.

    Raises ``UsageError`` for a reference that can be neither, and what the doors raise."""
    return open_all([ref], options or Opening())[0]


def open_all(refs: Sequence[str], options: Opening) -> list[Source]:
    """All sources, in order. Bare pages become one source, so that they are polled side by side."""
    for ref in refs:
        _refuse_what_is_neither(ref)
    opened: list[Source] = []
    pages: list[str] = []
    with ExitStack() as undo:
        for ref in dict.fromkeys(refs):
            found = _open_url(ref, options) if "://" in ref else _open_bundle(ref)
            if isinstance(found, str):
                pages.append(found)
                continue
            undo.callback(getattr(found, "close", _nothing))
            opened.append(found)
        if pages:
            opened.append(_open_pages(pages, options))
        undo.pop_all()
    return opened


def _nothing() -> None:
    return None


def _refuse_what_is_neither(ref: str) -> None:
    scheme, separator, _ = ref.partition("://")
    if separator and scheme not in ("http", "https"):
        raise UsageError(
            f"{scheme}:// is no kind of source", hint="give an http(s):// URL or the path of a bundle"
        )
    if not separator and not Path(ref).exists() and _HOST_AND_PORT.fullmatch(ref):
        raise UsageError(f"{ref} is neither a bundle nor a URL", hint=f"write http://{ref}")


def _open_bundle(ref: str) -> Source:
    from diag.sources.bundle import BundleSource

    return BundleSource(Path(ref))


def _open_url(url: str, options: Opening) -> Source | str:
    """The store behind ``url``, or the address of a bare page."""
    from diag.sources.prometheus import PrometheusSource

    if urlsplit(url).path.rstrip("/").endswith("/metrics"):
        return url
    url = store_address(url)
    try:
        return PrometheusSource(url, options.access)
    except NotPrometheus as no_store:
        page = _page_near(url, options)
        if page is None:
            raise no_store from None
        return page


def store_address(url: str) -> str:
    """``url`` without what a browser's address bar adds to a store's address, as ``/graph?…``."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    pasted = _PASTED.sub("", path)
    return url if pasted == path else urlunsplit(parts._replace(path=pasted, query="", fragment=""))


def _page_near(url: str, options: Opening) -> str | None:
    """The metrics page at ``url`` or one step below, as engines serve it."""
    from diag.sources.access import Client
    from diag.sources.exposition import looks_like_page

    parts = urlsplit(url)
    below = urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/metrics"))
    for candidate in dict.fromkeys((url, below)):
        client = Client(candidate, options.access)
        try:
            reply = client.get()
        except SourceError:
            continue
        finally:
            client.close()
        if reply.status < 300 and looks_like_page(reply.content.decode("utf-8", "replace")):
            return candidate
    return None


def _open_pages(pages: Sequence[str], options: Opening) -> Source:
    from diag.sources.scrape import ScrapeSource

    def show(done_seconds: float, total_seconds: float, pages: int, series: int) -> None:
        if options.progress is not None:
            options.progress(
                f"scraping: {done_seconds:.0f} of {total_seconds:.0f} s, {pages} pages, {series} series"
            )

    source = ScrapeSource(pages, options.access)
    try:
        source.collect(options.scrape_for_seconds, show)
    except BaseException:
        source.close()
        raise
    return source


def unknown_label(sources: Sequence[Source], question: Question) -> UsageError | None:
    """The error that says which label or value of ``question.matchers`` no series carries, if that is it."""
    values: dict[str, Counter[str]] = {}
    for source in sources:
        for labels in _recent_labels(source, question):
            for name, value in labels.items():
                values.setdefault(name, Counter())[value] += 1
    values.pop("__name__", None)
    if not values:
        return None
    # The labels that most series carry say where things run; rare ones come from info metrics.
    carried = Counter({name: counts.total() for name, counts in values.items()})
    for matcher in question.matchers:
        said = f"--match {matcher.label}{matcher.op}{matcher.value}"
        if matcher.label not in values:
            what = f"{said}: no series carries the label {matcher.label!r}"
            return UsageError(what, hint=f"labels here: {_some(carried)}")
        if matcher.op == "=" and matcher.value not in values[matcher.label]:
            return UsageError(
                f"{said}: no series has that value", hint=f"values here: {_some(values[matcher.label])}"
            )
    return UsageError("--match leaves no series", hint=f"labels here: {_some(carried)}")


def _recent_labels(source: Source, question: Question) -> list[dict[str, str]]:
    window = question.window or source.extent()
    if window is None:
        return []
    # Label sets hardly change; a store need not send hours of samples to show them.
    recent = replace(window, start=max(window.start, window.end - _LABELS_FROM_SECONDS))
    try:
        return [dict(one.labels) for one in source.raw(recent)] or [
            dict(one.labels) for one in source.raw(window)
        ]
    except SourceError:
        return []


def _some(names: Counter[str]) -> str:
    ordered = sorted(names, key=lambda name: (-names[name], name))
    more = f" and {len(ordered) - _NAMED_AT_MOST} more" if len(ordered) > _NAMED_AT_MOST else ""
    return ", ".join(ordered[:_NAMED_AT_MOST]) + more
