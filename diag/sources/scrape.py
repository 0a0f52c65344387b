"""Bare /metrics pages, polled for a while: no store needed."""

from __future__ import annotations

import time as real_time
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import numpy as np

from diag.errors import NotPrometheus, SourceError
from diag.model import SourceRef, Window
from diag.signals.algebra import Matcher
from diag.signals.frame import Grid, RawSeries
from diag.sources.access import Access, Client
from diag.sources.evaluation import RawStore
from diag.sources.exposition import BadLines, looks_like_page, samples
from diag.sources.naming import metric_names
from diag.sources.protocol import Attachments, Fetched

__all__ = ["Progress", "ScrapeSource", "interval_seconds"]

Progress = Callable[[float, float, int, int], None]
"""Called as ``progress(done_seconds, total_seconds, pages, series)`` after every round."""

_ACCEPT = "text/plain;version=0.0.4"
_SHORTEST_LOOK_SECONDS = 600.0
_Key = tuple[tuple[str, str], ...]


class ScrapeSource:
    """One or more pages. Opening fetches each once; ``collect`` polls them together."""

    def __init__(
        self,
        urls: str | Sequence[str],
        access: Access | None = None,
        *,
        clock: Callable[[], float] = real_time.time,
        sleep: Callable[[float], None] = real_time.sleep,
    ) -> None:
        """Raises ``NotPrometheus`` if an address is no metrics page, and the other leaves."""
        addresses = [urls] if isinstance(urls, str) else list(urls)
        access = access or Access()
        accepting = Access(
            {"Accept": _ACCEPT, **access.headers}, access.bearer_token, access.basic, access.client_cert,
            access.client_key, access.ca_file, min(access.timeout_seconds, 10.0),
        )  # fmt: skip
        self._pages = [_Page(Client(url, accepting, sleep=sleep)) for url in addresses]
        self._clock, self._sleep = clock, sleep
        self._columns: dict[_Key, tuple[array[float], array[float]]] = {}
        self._rounds: list[float] = []
        self._bad = BadLines()
        self._store: RawStore | None = None
        self._failed = 0
        self._round(first=True)

    @property
    def ref(self) -> SourceRef:
        """Kind and the addresses, without credentials."""
        return SourceRef("scrape", " ".join(page.client.url for page in self._pages))

    def collect(self, seconds: float, progress: Progress | None = None) -> None:
        """Poll all pages for ``seconds`` more, every 1 to 5 s; two rounds at least.

        A page that fails gets ``up`` = 0 for that round and is tried again in the next."""
        every = interval_seconds(seconds)
        start = self._rounds[-1]
        rounds = max(1, int(seconds // every))
        for number in range(1, rounds + 1):
            wait = start + number * every - self._clock()
            if wait > 0:
                self._sleep(wait)
            self._round()
            if progress is not None:
                progress(min(number * every, seconds), seconds, len(self._pages), len(self._columns))
        self._store = None

    def close(self) -> None:
        """Drop the connections."""
        for page in self._pages:
            page.client.close()

    def extent(self) -> Window | None:
        """First to last round so far."""
        return Window(self._rounds[0], self._rounds[-1])

    def marked(self) -> tuple[Window | None, Window | None]:
        """Nothing is marked."""
        return None, None

    def attachments(self) -> Attachments:
        """A page has none."""
        return Attachments()

    def begins(self, window: Window, matchers: Sequence[Matcher] = ()) -> float | None:
        """See ``Source``."""
        return self._opened().begins(window, matchers)

    def scrape_seconds(self, window: Window) -> float | None:
        """See ``Source``."""
        return self._opened().scrape_seconds(window)

    def fetch(self, signals: Sequence[str], grid: Grid, matchers: Sequence[Matcher] = ()) -> Fetched:
        """See ``Source``; the notes say what a longer look would add."""
        fetched = self._opened().fetch(signals, grid, matchers)
        notes = tuple(note for note in (*self._notes(), *fetched.notes) if note)
        return Fetched(fetched.series, fetched.gaps, fetched.facts, (), notes, fetched.page_stalls)

    def raw(self, window: Window, matchers: Sequence[Matcher] = ()) -> Iterator[RawSeries]:
        """See ``Source``."""
        return self._opened().within(window, matchers)

    def _notes(self) -> Iterator[str]:
        looked = self._rounds[-1] - self._rounds[0]
        if looked < _SHORTEST_LOOK_SECONDS:
            yield (
                f"the pages were watched for {looked:.0f} s ({len(self._rounds)} samples): what began"
                " earlier has no onset and no baseline here; a longer look (--for 10m) or a store adds them"
            )
        if self._failed:
            asked = len(self._rounds) * len(self._pages)
            yield f"{self._failed} of {asked} scrapes failed and count as target down"
        yield self._bad.note()

    def _opened(self) -> RawStore:
        if self._store is None:
            self._store = RawStore(
                RawSeries(dict(key), np.array(times, dtype=np.float64), np.array(values, dtype=np.float64))
                for key, (times, values) in self._columns.items()
            )
        return self._store

    def _round(self, *, first: bool = False) -> None:
        now = self._clock()
        with ThreadPoolExecutor(max_workers=min(8, len(self._pages))) as pool:
            answers = list(pool.map(lambda page: page.read(strict=first), self._pages))
        self._rounds.append(now)
        for page, text in zip(self._pages, answers, strict=True):
            self._add({"__name__": "up", "instance": page.instance}, now, 0.0 if text is None else 1.0)
            if text is None:
                self._failed += 1
                continue
            for sample in samples(text.splitlines(), page.client.url, self._bad):
                if sample.name in metric_names():
                    labels = {"instance": page.instance, **sample.labels, "__name__": sample.name}
                    self._add(labels, now, sample.value)

    def _add(self, labels: dict[str, str], time: float, value: float) -> None:
        key = tuple(sorted(labels.items()))
        times, values = self._columns.setdefault(key, (array("d"), array("d")))
        if not times or time > times[-1]:
            times.append(time)
            values.append(value)


class _Page:
    __slots__ = ("client", "instance")

    def __init__(self, client: Client) -> None:
        self.client = client
        parts = urlsplit(client.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        self.instance = f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    def read(self, *, strict: bool) -> str | None:
        """The page's text; None when it can't be had, unless ``strict``."""
        try:
            reply = self.client.get()
        except SourceError:
            if strict:
                raise
            return None
        text = reply.content.decode("utf-8", "replace")
        if reply.status < 300 and (looks_like_page(text) or not strict):
            return text
        if strict:
            html = "html" in reply.content_type or text.lstrip().startswith("<")
            raise NotPrometheus(
                f"{self.client.url} answers with {'an HTML page' if html else 'no metrics page'}",
                hint="give the address of a Prometheus API or of a /metrics page",
            )
        return None


def interval_seconds(seconds: float) -> float:
    """Seconds between polls for a look of ``seconds``: a sixtieth of it, within 1 … 5 s."""
    return float(min(5.0, max(1.0, seconds / 60.0)))
