from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from diag.cli.times import duration_seconds, moment
from diag.errors import UsageError

EAST = timezone(timedelta(hours=3))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("1D", 86400)],
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert duration_seconds(text, "--last") == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2 hours", "1h x", "0s", "99999999d"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--last"):
        duration_seconds(text, "--last")


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-29T20:57:22Z",
        "2026-11-29T23:57:22+03:00",
        "2026-11-29 20:57:22+00:00",
        "1795985842",
        "1795985842000",
    ],
)
def test_one_moment_in_many_spellings(text: str) -> None:
    assert moment(text, "--from") == 1795985842


@pytest.mark.parametrize("text", ["yesterday", "", "nan", "inf", "-5", "2026-13-01T00:00:00Z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--from"):
        moment(text, "--from")


def test_a_time_without_zone_is_refused_with_the_ways_to_write_it() -> None:
    with pytest.raises(UsageError) as caught:
        moment("2026-11-29T20:57", "--from", EAST)
    assert "has no time zone" in str(caught.value)
    assert "2026-11-29T20:57:00Z for UTC" in str(caught.value)
    assert "2026-11-29T20:57:00+03:00 for this machine's zone" in str(caught.value)


def test_a_machine_in_utc_offers_an_example_offset() -> None:
    with pytest.raises(UsageError, match=r"or, say, 2026-11-29T20:57:00\+03:00"):
        moment("2026-11-29T20:57", "--from", UTC)


def test_fractions_are_kept() -> None:
    assert (
        moment("2026-11-29T20:57:22.250Z", "--to")
        == datetime(2026, 11, 29, 20, 57, 22, 250000, UTC).timestamp()
    )
