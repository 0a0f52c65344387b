"""Rows and runs made by hand, so that every figure can be counted on fingers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from diag.accuracy.label import Kind, Label
from diag.accuracy.row import Answer, Row
from diag.simulate.observed import Call, Engine, Run
from diag.simulate.plan import Plan, Truth


def _row(
    leading: str | None, confidence: float = 0.95, *, truth: str | None = "load_burst", **more: Any
) -> Row:
    kind = Kind.HEALTHY if truth is None else Kind.UNKNOWN if truth == "unknown" else Kind.CAUSE
    answers = more.pop("answers", None)
    if answers is None:
        named = () if leading in (None, "unknown") else (Answer(leading, "supported", confidence),)
        doubt = Answer("unknown", "supported", confidence) if leading == "unknown" else Answer(
            "unknown", "undecided", 0.02
        )  # fmt: skip
        answers = (*named, doubt)
    label = {
        "kind": kind,
        "causes": () if truth in (None, "unknown") else (truth,),
        "leading": truth,
        "accept": (truth,),
        **more.pop("label", {}),
    }
    filled = {
        "name": "case", "family": "test", "digest": "d", "symptom": leading is not None, "scope": {},
        "onset": None, "engines": ("a", "b"), "step_seconds": 15.0, **more,
    }  # fmt: skip
    return Row(label=Label(**label), leading=leading, answers=answers, **filled)


@pytest.fixture
def row() -> Callable[..., Row]:
    """``row(leading, confidence, truth=…)``; ``label`` and every field can be given."""
    return _row


def _run(
    ttft: Callable[[float], float],
    *,
    onset: float | None = 1800.0,
    spacing_seconds: float = 5.0,
    replica: Callable[[int], str] = lambda _number: "a",
    status: Callable[[float], str] = lambda _time: "ok",
) -> Run:
    times = np.arange(0.0, 3600.1, 15.0)
    calls = []
    for number, sent in enumerate(np.arange(1.0, 3590.0, spacing_seconds)):
        first = sent + ttft(float(sent))
        said = status(float(sent))
        calls.append(
            Call(
                number, "t", "s", 0, replica(number), 100, 0, 0, float(sent), arrived=float(sent),
                first_token=first, answered=first, ended=first + 2.0, closed=first + 2.0, output_tokens=101,
                status=said,
            )
        )  # fmt: skip
    moving = np.linspace(0.0, 24_000.0, len(times))
    engine = Engine(
        "a",
        gauges={"running": np.ones(len(times)), "waiting": np.zeros(len(times))},
        counters={"generation_tokens": moving, "prompt_tokens": moving.copy()},
    )
    plan = Plan("by hand", 1, truth=Truth(causes=("load_burst",), leading="load_burst", onset=onset))
    return Run(plan, times, [engine], [], [], calls)


@pytest.fixture
def run() -> Callable[..., Run]:
    """An hour of one call every five seconds; ``ttft(sent)`` in seconds."""
    return _run
