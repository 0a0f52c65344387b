"""A fixed key, a clock that moves when told, and rows by name and labels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from diag_exporter.families import Histogram, Rows
from diag_exporter.sessions.events import Event
from diag_exporter.sessions.identity import Identifier, Key
from diag_exporter.sessions.series import session_rows
from diag_exporter.sessions.table import Limits, SessionTable


class Clock:
    """Seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A table with its clock; what it puts on the page, by family and labels."""

    def __init__(self, **limits: float) -> None:
        self.clock = Clock()
        self.table = SessionTable(Limits(**limits), clock=self.clock)  # type: ignore[arg-type]
        self.max_length: Callable[[str], int | None] | None = None

    def add(self, **fields: object) -> None:
        self.table.add(Event(**{"ts": 1.0, "model": "m", **fields}))  # type: ignore[arg-type]

    def page(self) -> dict[str, dict[tuple[str, ...], float | Histogram]]:
        return by_labels(session_rows(self.table, self.max_length))

    def value(self, family: str, *labels: str) -> float | Histogram | None:
        return self.page().get(family, {}).get(labels)


class Basket:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add_all(self, events: list[Event]) -> None:
        self.events.extend(events)


def by_labels(rows: Rows) -> dict[str, dict[tuple[str, ...], float | Histogram]]:
    """Rows by family and labels; two rows of one series are a mistake."""
    page: dict[str, dict[tuple[str, ...], float | Histogram]] = {}
    for family, some in rows.items():
        held = page.setdefault(family, {})
        for row in some:
            assert row.labels not in held, (family, row.labels)
            held[row.labels] = row.value
    return page


@pytest.fixture
def identifier() -> Identifier:
    return Identifier(Key(b"k" * 32, 0.0))


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def benches() -> type[Bench]:
    """For tests that want other limits."""
    return Bench


@pytest.fixture
def basket() -> Basket:
    return Basket()
