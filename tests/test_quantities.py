from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diag.quantities import change, offset, percent, plain, quantity, rounded, span, timestamp


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5, "seconds", "1.5 s"),
        (0.0283, "seconds", "28.3 ms"),
        (240.0, "seconds", "240 s"),
        (1200.0, "seconds", "20 min"),
        (92_345.678, "tokens", "92.3k tokens"),
        (3500, "tokens", "3.5k tokens"),
        (999_999, "tokens", "1M tokens"),
        (0.999, "ratio", "99.9 %"),
        (0.9999, "ratio", "99.9 %"),
        (1.0, "ratio", "100 %"),
        (0.0, "ratio", "0 %"),
        (0.0004, "ratio", "<0.1 %"),
        (1.98e9, "hertz", "1980 MHz"),
        (85.4e9, "bytes", "85.4 GB"),
        (6.4321, "per second", "6.43/s"),
        (1234.0, "tokens per second", "1.23k tokens/s"),
        (61.5, "celsius", "61.5 °C"),
        (-12.0, "celsius", "−12 °C"),
        (79.0, "code", "79"),
        (1_795_985_842.0, "unix seconds", "2026-11-29 20:57:22 UTC"),
        (None, "tokens", "unknown"),
        (math.nan, "seconds", "unknown"),
        (math.inf, "seconds", "unknown"),
    ],
)
def test_a_quantity_reads_like_a_person_wrote_it(value: float | None, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


@given(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(["seconds", "tokens", "ratio", "bytes", "hertz", "watts", "per second", "requests", ""]),
)
def test_no_quantity_has_a_raw_float_tail(value: float, unit: str) -> None:
    text = quantity(value, unit)
    assert "nan" not in text
    assert "inf" not in text
    if abs(value) < 1e15:
        assert not re.search(r"\d\.\d{4,}|e[+-]", text) or abs(value) < 1e-3


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_twice_changes_nothing(value: float) -> None:
    once = rounded(value)
    assert rounded(once) == once


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_rounding_keeps_five_digits(value: float) -> None:
    once = rounded(value)
    assert once is not None
    assert math.isclose(once, value, rel_tol=1e-5)


def test_a_change_says_the_unit_once_where_it_is_the_same() -> None:
    assert change(1.5, 240, "seconds") == "1.5 → 240 s"
    assert change(0.02, 4.5, "seconds") == "20 ms → 4.5 s"
    assert change(None, 92_000, "tokens") == "unknown → 92k tokens"


def test_offsets_are_signed() -> None:
    assert [offset(value) for value in (0.0, 41.0, -20.0, 140.2, 7260.0)] == [
        "+0 s",
        "+41 s",
        "−20 s",
        "+2:20 min",
        "+2:01 h",
    ]


def test_times_are_rfc_3339_in_utc() -> None:
    assert timestamp(1_795_985_842.0) == "2026-11-29T20:57:22Z"
    assert timestamp(1_795_985_842.25) == "2026-11-29T20:57:22.250Z"
    assert timestamp(None) is None
    assert timestamp(math.nan) is None


def test_control_characters_of_strangers_are_dropped() -> None:
    assert plain("a\x1b[31mred\x1b[0m\nb\x07\u202e") == "a[31mred[0m b"


def test_spans_and_shares_at_their_edges() -> None:
    assert span(599) == "599 s"
    assert span(7200) == "2 h"
    assert percent(0.0994) == "9.9 %"
    assert percent(0.1) == "10 %"
