"""The few calls behind every command, for programs as for the command line.

    verdict = triage("https://prometheus.example")          # or a /metrics page, or a bundle
    print(render(verdict, "markdown"))

Sources are opened, asked and closed inside each call; ``connect`` and ``open_bundle`` give one to
keep. Every failure is a ``DiagError`` whose text is one line for an operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from diag.api.demos import Demo, demo_named, demos
from diag.api.judging import judged, windowed
from diag.errors import NoData, UsageError
from diag.renderers import RenderOptions, load, render

if TYPE_CHECKING:
    from diag.model import Card, Case, Verdict
    from diag.renderers.checked import Checked
    from diag.sources.access import Access
    from diag.sources.protocol import Question, Source

__all__ = [
    "Demo",
    "Progress",
    "RenderOptions",
    "cards",
    "check",
    "connect",
    "demo",
    "demo_named",
    "demos",
    "explain",
    "gather",
    "load",
    "open_bundle",
    "open_sources",
    "record",
    "render",
    "runbook",
    "triage",
]

Progress = Callable[[str], None]
References = str | Path | Sequence[str | Path]

_LIVE_SECONDS = 3600.0


def connect(url: str, access: Access | None = None) -> Source:
    """A source for ``url``: a Prometheus-compatible API or a bare /metrics page, found out by asking."""
    from diag.sources.opening import Opening, open_source

    return open_source(url, Opening(access=access))


def open_bundle(path: str | Path) -> Source:
    """A source for the bundle at ``path``: a folder, .zip or .tar.gz."""
    from diag.sources.bundle import BundleSource

    return BundleSource(Path(path))


def open_sources(
    refs: References,
    *,
    access: Access | None = None,
    scrape_for_seconds: float = 120.0,
    progress: Progress | None = None,
) -> list[Source]:
    """Open everything in ``refs``, in order. Bare pages become one source that polls them together."""
    from diag.sources.opening import Opening, open_all

    named = [refs] if isinstance(refs, str | Path) else list(refs)
    if not named:
        raise UsageError("no source given", hint="name a Prometheus URL, a /metrics page or a bundle")
    return open_all(
        [str(ref) for ref in named],
        Opening(access=access, scrape_for_seconds=scrape_for_seconds, progress=progress),
    )


def gather(sources: Sequence[Source], question: Question, *, progress: Progress | None = None) -> Case:
    """Everything the sources know about the question's window.

    ``UsageError`` when a matcher names a label that no series carries, ``NoData`` when there is nothing."""
    from diag.sources.gather import gather as gather_case
    from diag.sources.opening import unknown_label

    try:
        case = gather_case(sources, question, progress=progress)
    except NoData as nothing:
        wrong = unknown_label(sources, question)
        if wrong:
            raise wrong from nothing
        raise
    if question.matchers and not _measured(case):
        wrong = unknown_label(sources, question)
        if wrong:
            raise wrong
    return case


def _measured(case: Case) -> bool:
    """Whether a metric is there: matchers narrow metrics only, and logs would hide that all are gone."""
    producers = {one.producer for series in case.series.values() for one in series}
    return any(name != "facts" and not name.startswith("log:") for name in producers)


def triage(
    refs: References,
    *,
    question: Question | None = None,
    access: Access | None = None,
    live_seconds: float = _LIVE_SECONDS,
    progress: Progress | None = None,
) -> Verdict:
    """Judge ``refs``. Without a window in ``question`` a bundle is taken whole and a live store for the
    last ``live_seconds``."""
    with _case(refs, question, access, live_seconds, progress) as (case, asked):
        _tell(progress, "judging")
        return judged(case, asked.now)


def check(
    refs: References,
    *,
    question: Question | None = None,
    access: Access | None = None,
    live_seconds: float = _LIVE_SECONDS,
    progress: Progress | None = None,
) -> Checked:
    """What ``refs`` deliver, what is missing and how to get it, and which hypotheses can be judged."""
    from diag.api.checking import checked

    with _case(refs, question, access, live_seconds, progress) as (case, asked):
        _tell(progress, "judging")
        return checked(case, judged(case, asked.now))


def record(
    refs: References,
    path: str | Path,
    *,
    question: Question | None = None,
    access: Access | None = None,
    live_seconds: float = _LIVE_SECONDS,
    hash_hosts: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write what ``refs`` hold for the question's window as a bundle to ``path`` and return it."""
    from diag.sources.recording import record as write

    target = Path(path)
    with _opened(refs, question, access, live_seconds, progress) as (sources, asked):
        _tell(progress, "recording")
        write(sources, asked, target, hash_hosts=hash_hosts, progress=progress)
    return target


def explain(id: str) -> Card:
    """The card of hypothesis ``id``; ``UsageError`` with near matches when there is none."""
    known = {card.id: card for card in cards()}
    if id in known:
        return known[id]
    raise _unknown(id, known)


def runbook(id: str) -> str:
    """The runbook of hypothesis or symptom ``id`` as it ships, Markdown with front matter;
    ``UsageError`` with near matches when there is none."""
    from diag.assets.shipped import read_text
    from diag.assets.symptoms import SYMPTOMS

    known = [*(card.id for card in cards()), *SYMPTOMS]
    if id not in known:
        raise _unknown(id, known)
    return read_text(f"runbooks/{id}.md")


def _unknown(id: str, known: Iterable[str]) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(id, known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "`diag explain` lists them"
    return UsageError(f"no hypothesis or symptom is called {id!r}", hint=hint)


def cards() -> tuple[Card, ...]:
    """The cards of all hypotheses, in their own order."""
    from diag.hypotheses import CARDS

    return tuple(CARDS.values())


def demo(name: str = "context_growth", *, progress: Progress | None = None) -> Verdict:
    """Triage the shipped incident ``name``; ``UsageError`` when there is none."""
    from diag.model import SourceRef

    chosen = demo_named(name)
    with chosen.opened() as path:
        verdict = triage(path, progress=progress)
    notes = (f"{chosen.banner}.", *verdict.notes) if chosen.simulated else verdict.notes
    # The archive was unpacked somewhere for a moment; the name is what a reader can use.
    return replace(verdict, source=(SourceRef("demo", chosen.name),), notes=notes)


@contextmanager
def _case(
    refs: References,
    question: Question | None,
    access: Access | None,
    live_seconds: float,
    progress: Progress | None,
) -> Iterator[tuple[Case, Question]]:
    with _opened(refs, question, access, live_seconds, progress) as (sources, asked):
        _tell(progress, "reading")
        yield gather(sources, asked, progress=progress), asked


@contextmanager
def _opened(
    refs: References,
    question: Question | None,
    access: Access | None,
    live_seconds: float,
    progress: Progress | None,
) -> Iterator[tuple[list[Source], Question]]:
    from diag.sources.protocol import Question

    asked = question or Question(now=time.time())
    with ExitStack() as stack:
        _tell(progress, "opening")
        sources = open_sources(
            refs, access=access, scrape_for_seconds=asked.scrape_for_seconds, progress=progress
        )
        for source in sources:
            close = getattr(source, "close", None)
            if close is not None:
                stack.callback(close)
        yield sources, windowed(asked, sources, live_seconds)


def _tell(progress: Progress | None, text: str) -> None:
    if progress is not None:
        progress(text)
