from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diag.model import Window
from diag.records import (
    length_bins,
    read_requests,
    repeated_prefix_estimate,
    session_age_seconds,
    share_by,
    turn_index,
)

Write = Callable[..., Path]


def test_ages_turns_and_bins(write_lines: Write) -> None:
    rows = [
        {"ts": 10, "session": "a", "prompt_tokens": 512},
        {"ts": 12, "session": "b", "prompt_tokens": 513},
        {"ts": 40, "session": "a"},
        {"ts": 50, "prompt_tokens": 200_000},
    ]
    frame = read_requests([write_lines("r.jsonl", rows)]).frame
    assert session_age_seconds(frame).tolist()[:3] == [0.0, 0.0, 30.0]
    assert turn_index(frame).tolist()[:3] == [0.0, 0.0, 1.0]
    assert math.isnan(session_age_seconds(frame)[3])
    assert math.isnan(turn_index(frame)[3])
    bins = length_bins(frame)
    assert bins.astype(object).tolist()[:2] == ["≤512", "≤2048"]
    assert bins.isna().tolist() == [False, False, True, False]
    assert bins[3] == ">131072"


def test_shares_are_of_everything_in_the_window(write_lines: Write) -> None:
    rows = [
        {"ts": 1, "tenant": "early", "prompt_tokens": 10_000},
        {"ts": 10, "tenant": "a", "prompt_tokens": 600, "output_tokens": 100},
        {"ts": 11, "tenant": "b", "prompt_tokens": 100},
        {"ts": 12, "tenant": "b"},
        {"ts": 13, "prompt_tokens": 200},
    ]
    frame = read_requests([write_lines("r.jsonl", rows)]).frame
    shares = share_by(frame, "tenant", Window(5, 20))
    assert shares.index.tolist() == ["a", "b"]
    assert shares["token_ratio"].tolist() == pytest.approx([0.7, 0.1])
    assert shares["request_ratio"].tolist() == pytest.approx([0.25, 0.5])
    assert len(share_by(frame, "tenant", Window(100, 200))) == 0
    unknown = share_by(frame, "tenant", Window(12, 12))
    assert math.isnan(unknown["token_ratio"]["b"])


def test_repeated_prefix(write_lines: Write) -> None:
    rows = [
        {"ts": 1, "session": "a", "prompt_tokens": 100, "output_tokens": 50},
        {"ts": 2, "session": "b", "prompt_tokens": 1000},
        {"ts": 3, "session": "a", "prompt_tokens": 200, "output_tokens": 10},
        {"ts": 4, "session": "a", "status": "aborted"},
        {"ts": 5, "session": "a", "prompt_tokens": 420},
        {"ts": 6, "session": "b", "prompt_tokens": 500},
        {"ts": 7, "prompt_tokens": 500},
    ]
    estimate = repeated_prefix_estimate(read_requests([write_lines("r.jsonl", rows)]).frame)
    known = [0, 1, 3, 6]
    assert np.isnan(estimate.to_numpy()[known]).all()
    assert estimate[2] == 0.75
    assert estimate[4] == 0.5, "the turn that failed left nothing; the one before it counts"
    assert estimate[5] == 1.0, "a trimmed history can be held in full: an upper bound"


def test_recorded_growth_could_have_been_cached(incidents: Path) -> None:
    frame = read_requests([incidents / "context_growth_reference" / "requests" / "requests.jsonl.gz"]).frame
    old = frame["session"].str.startswith("old")
    estimate = repeated_prefix_estimate(frame)
    assert estimate[old].dropna().median() > 0.8
    assert estimate[~old].isna().all(), "each fresh request is its own session"
    ages = session_age_seconds(frame)
    slow = frame["ttft_seconds"] > 10
    assert ages[slow & old].min() > 60
    assert frame["cached_tokens"].max() == 0
