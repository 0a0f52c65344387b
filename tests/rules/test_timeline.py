"""Stretching a recording: what is repeated, and that counters survive the seams."""

from __future__ import annotations

import numpy as np
import pytest

from diag.model import Floats
from diag.signals.frame import RawSeries
from diag.simulate import Bundle
from tests.rules.timeline import SCRAPE_SECONDS, openmetrics, stretched

_NAMES = frozenset({"x_total", "load"})


def _bundle(onset: float | None) -> Bundle:
    times: Floats = 1000.0 + 2.0 * np.arange(101, dtype=np.float64)
    broken = times >= (onset or np.inf)
    counter = np.cumsum(np.where(broken, 20.0, 2.0))
    series = (
        RawSeries({"__name__": "x_total", "instance": "a"}, times, counter),
        RawSeries({"__name__": "load", "instance": "a"}, times, np.where(broken, 9.0, 1.0)),
        RawSeries({"__name__": "other", "instance": "a"}, times, times),
    )
    meta = {
        "name": "made",
        "step_seconds": 2,
        "window": {"from": 1000.0, "to": 1200.0},
        "label": {"onset": onset},
    }
    return Bundle(meta, {"engine": series})


def test_calm_trouble_calm() -> None:
    made = stretched(_bundle(1100.0), 0.0, _NAMES, calm=600.0, hurt=900.0, after=300.0)
    assert (made.onset, made.over) == (600.0, 1500.0)
    load = next(one for one in made.series if one.labels["__name__"] == "load")
    assert set(load.values[load.times < 600]) == {1.0}
    assert set(load.values[(load.times >= 600) & (load.times < 1500)]) == {9.0}
    assert set(load.values[load.times >= 1500]) == {1.0}
    assert {one.labels["__name__"] for one in made.series} == _NAMES


def test_a_counter_keeps_its_pace_over_the_seams() -> None:
    made = stretched(_bundle(1100.0), 0.0, _NAMES, calm=600.0, hurt=900.0, after=300.0)
    counter = next(one for one in made.series if one.labels["__name__"] == "x_total")
    rates = np.diff(counter.values) / np.diff(counter.times)
    assert rates.min() >= 0.0
    calm, hurt = (
        rates[counter.times[1:] < 600],
        rates[(counter.times[:-1] >= 660) & (counter.times[1:] < 1500)],
    )
    assert calm.mean() == pytest.approx(1.0, rel=0.05)
    assert hurt.mean() == pytest.approx(10.0, rel=0.05)


def test_a_recorded_reset_stays_one() -> None:
    bundle = _bundle(1100.0)
    first = next(bundle.series("x_total"))
    values = np.where(first.times > 1120.0, first.values - first.values[60], first.values)
    again = bundle.with_metrics(engine=[RawSeries(first.labels, first.times, values)])
    made = stretched(again, 0.0, _NAMES, calm=600.0, hurt=900.0, after=300.0)
    drops = np.flatnonzero(np.diff(made.series[0].values) < 0)
    assert drops.size == 1
    assert 600 <= made.series[0].times[drops[0]] <= 600 + 60


def test_a_healthy_recording_has_no_onset() -> None:
    made = stretched(_bundle(None), 0.0, _NAMES, calm=600.0, hurt=0.0, after=0.0)
    assert (made.onset, made.over) == (None, None)
    assert np.diff(made.series[0].times).max() == SCRAPE_SECONDS


def test_openmetrics_escapes_and_ends() -> None:
    series = RawSeries({"__name__": "x", "path": 'a"\\b\n'}, np.array([1.5, 2.0]), np.array([1.0, np.nan]))
    assert list(openmetrics([series])) == ['x{path="a\\"\\\\b\\n"} 1.0 1.500\n', "# EOF\n"]
