"""Silence is told only where all of what an engine makes is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from diag.detectors.silence import silence_of
from diag.model import Case, Series

N = 6
NAN = np.nan


def test_silence_needs_something_held_and_nothing_made(
    series: Callable[..., Series], case: Callable[..., Case]
) -> None:
    running = series("running_requests", np.array([2.0, 2.0, 0.0, NAN, 0.0, NAN]), instance="a")
    waiting = series("waiting_requests", np.array([0.0, 0.0, 0.0, 3.0, 4.0, NAN]), instance="a")
    tokens = series("generation_tokens_per_second", np.array([9.0, 0.0, 0.0, 0.0, 0.0, 0.0]), instance="a")
    silent = silence_of(case(running, waiting, tokens), running)
    assert silent is not None
    np.testing.assert_array_equal(silent, [0, 1, 0, 1, 1, NAN])


def test_half_of_what_an_engine_makes_is_no_silence(
    series: Callable[..., Series], case: Callable[..., Case]
) -> None:
    running = series("running_requests", np.full(N, 2.0), instance="a")
    answers = series("generation_tokens_per_second", np.array([0.0, 0.0, 9.0, NAN, 0.0, NAN]), instance="a")
    prompts = series("prompt_tokens_per_second", np.array([0.0, NAN, NAN, 0.0, 5.0, NAN]), instance="a")
    silent = silence_of(case(running, answers, prompts), running)
    assert silent is not None
    np.testing.assert_array_equal(silent, [1, NAN, 0, NAN, 0, NAN])


def test_an_engine_that_tells_nothing_of_what_it_makes_is_not_silent(
    series: Callable[..., Series], case: Callable[..., Case]
) -> None:
    running = series("running_requests", np.full(N, 2.0), instance="a")
    assert silence_of(case(running), running) is None
