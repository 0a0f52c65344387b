"""A bundle, ``diag.bundle/1``: a folder, or a .zip or .tar.gz of it. Its label is never read."""

from __future__ import annotations

import re
import shutil
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from diag.errors import BundleTooNew, BundleUnreadable
from diag.model import SourceRef, Window
from diag.signals.algebra import Matcher
from diag.signals.frame import Grid, RawSeries
from diag.sources.alerts import METRIC
from diag.sources.evaluation import RawStore
from diag.sources.naming import metric_names
from diag.sources.protocol import Attachments, Fetched
from diag.sources.series_files import read_metrics
from diag.sources.unpacking import bundle_root, unpacked

__all__ = ["SCHEMA", "BundleSource"]

SCHEMA = "diag.bundle/1"


class _Span(msgspec.Struct):
    start: float = msgspec.field(name="from")
    end: float = msgspec.field(name="to")


class _Description(msgspec.Struct):
    # Only what is read: `label` and `notes` stay out of reach of triage.
    schema: str
    window: _Span | None = None
    step_seconds: float | None = None
    incident: _Span | None = None
    name: str = ""


class _Schema(msgspec.Struct):
    schema: str = ""


class BundleSource:
    """A bundle on disk. Metrics are read at opening; records and logs are only located."""

    def __init__(self, path: Path | str) -> None:
        """Open ``path``. Raises ``BundleUnreadable`` or ``BundleTooNew``. Call ``close`` when done:
        an archive is unpacked into a temporary folder."""
        path = Path(path)
        self._ref = SourceRef("bundle", str(path))
        folder = path
        if not path.exists():
            raise BundleUnreadable(
                f"{path} does not exist", hint="give a bundle's folder, .zip or .tar.gz, or a URL"
            )
        if path.is_file():
            folder = unpacked(path)
            self._clean = weakref.finalize(self, shutil.rmtree, folder, True)
        try:
            self._folder = bundle_root(folder, str(path))
            self._description = _described(self._folder / "bundle.json", str(path))
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        reading = read_metrics(self._folder / "metrics", metric_names() | {METRIC})
        self._store = RawStore(reading)
        self._notes = tuple(note for note in (*reading.notes, reading.bad.note()) if note)
        damaged = reading.bad.count or reading.notes
        if damaged and not reading.series_read and not any(_paths(self._attached())):
            raise BundleUnreadable(
                f"{self._ref.ref} has no readable metrics ({self._notes[0]})", hint="copy or record it again"
            )

    def close(self) -> None:
        """Delete the unpacked archive, if there is one."""
        clean = getattr(self, "_clean", None)
        if clean is not None:
            clean()

    def __enter__(self) -> BundleSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ref(self) -> SourceRef:
        """Kind and path."""
        return self._ref

    @property
    def step_seconds(self) -> float | None:
        """What bundle.json says about the distance of samples."""
        return self._description.step_seconds

    def extent(self) -> Window | None:
        """The window of bundle.json, else that of the samples."""
        span = self._description.window
        return Window(span.start, span.end) if span else self._store.extent()

    def marked(self) -> tuple[Window | None, Window | None]:
        """No baseline, and the incident of bundle.json if a person marked one."""
        span = self._description.incident
        return None, Window(span.start, span.end) if span else None

    def begins(self, window: Window, matchers: Sequence[Matcher] = ()) -> float | None:
        """See ``Source``."""
        return self._store.begins(window, matchers)

    def scrape_seconds(self, window: Window) -> float | None:
        """From the samples, else what bundle.json says."""
        return self._store.scrape_seconds(window) or self._description.step_seconds

    def fetch(self, signals: Sequence[str], grid: Grid, matchers: Sequence[Matcher] = ()) -> Fetched:
        """See ``Source``; unreadable lines are among the notes."""
        fetched = self._store.fetch(signals, grid, matchers)
        return Fetched(
            fetched.series, fetched.gaps, fetched.facts, fetched.events,
            (*self._notes, *fetched.notes), fetched.page_stalls,
        )  # fmt: skip

    def raw(self, window: Window, matchers: Sequence[Matcher] = ()) -> Iterator[RawSeries]:
        """See ``Source``."""
        return self._store.within(window, matchers)

    def attachments(self) -> Attachments:
        """Real files; in an archive they live until ``close``."""
        return self._attached()

    def _attached(self) -> Attachments:
        events = self._folder / "events.jsonl"
        return Attachments(
            requests=_files(self._folder / "requests", r"\.jsonl(\.gz)?$"),
            traces=_files(self._folder / "traces", r"\.jsonl(\.gz)?$"),
            logs=_files(self._folder / "logs", r"\.log(\.gz)?$"),
            events=(events,) if events.is_file() else (),
        )


def _described(path: Path, ref: str) -> _Description:
    text = path.read_bytes()
    try:
        schema = msgspec.json.decode(text, type=_Schema).schema
        family, _, number = schema.rpartition("/")
        if family == SCHEMA.rpartition("/")[0] and number.isdigit() and schema != SCHEMA:
            raise BundleTooNew(
                f"{ref} is a {schema}; this version reads {SCHEMA}",
                hint="upgrade with `pip install -U llm-diag`",
            )
        if schema != SCHEMA:
            raise BundleUnreadable(
                f"{ref} says its schema is {schema!r}, not {SCHEMA}", hint="is it a bundle?"
            )
        return msgspec.json.decode(text, type=_Description)
    except msgspec.MsgspecError as error:
        raise BundleUnreadable(
            f"{ref}: bundle.json is not as agreed ({error})", hint="see the bundle format"
        ) from None


def _files(folder: Path, pattern: str) -> tuple[Path, ...]:
    if not folder.is_dir():
        return ()
    return tuple(
        path for path in sorted(folder.iterdir()) if path.is_file() and re.search(pattern, path.name)
    )


def _paths(attached: Attachments) -> tuple[Path, ...]:
    return (*attached.requests, *attached.traces, *attached.logs, *attached.events)
