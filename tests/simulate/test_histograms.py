"""Multiplying a histogram's observations: nothing lost, sums exact, buckets plausible."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diag.errors import BundleError
from diag.model import Floats
from diag.signals.frame import RawSeries
from diag.simulate.histograms import find_histograms, scaled

BOUNDS = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0]
FAMILY = "vllm:time_to_first_token_seconds"


def rows(parts: Sequence[RawSeries]) -> tuple[Floats, Floats, Floats]:
    buckets = np.stack([part.values for part in parts[:-2]])
    return buckets, parts[-2].values, parts[-1].values


def stretched(series: list[RawSeries], factor: float) -> tuple[RawSeries, ...]:
    (histogram,) = find_histograms(series, frozenset({FAMILY}))
    intervals = histogram.times.size - 1
    return scaled(histogram, np.full(intervals, factor), np.ones(intervals))


observations = st.lists(
    st.lists(st.floats(0.001, 8.0, allow_nan=False), min_size=0, max_size=12), min_size=1, max_size=5
)


@settings(max_examples=60, deadline=None)
@given(observations, st.floats(0.3, 6.0))
def test_counts_kept_sums_scaled_and_le_monotone(batches: list[list[float]], factor: float) -> None:
    times: Floats = np.arange(len(batches) + 1, dtype=np.float64) * 2.0 + 1000.0

    def line(name: str, values: list[float], **labels: str) -> RawSeries:
        cumulative = np.array([0.0, *np.cumsum(values)], dtype=float)
        return RawSeries({"__name__": name, "instance": "a:1", **labels}, times, cumulative)

    series = [
        line(f"{FAMILY}_bucket", [sum(v <= b for v in batch) for batch in batches], le=str(b)) for b in BOUNDS
    ]
    series.append(line(f"{FAMILY}_bucket", [len(batch) for batch in batches], le="+Inf"))
    series.append(line(f"{FAMILY}_sum", [sum(batch) for batch in batches]))
    series.append(line(f"{FAMILY}_count", [len(batch) for batch in batches]))
    buckets, sums, counts = rows(stretched(series, factor))
    assert np.array_equal(counts, series[-1].values)
    assert np.array_equal(buckets[-1], counts)
    assert np.allclose(sums, factor * series[-2].values)
    assert (np.diff(buckets, axis=0) >= 0).all()
    assert (np.diff(buckets, axis=1) >= 0).all()
    assert np.array_equal(buckets, np.rint(buckets))


def test_the_factor_one_changes_nothing(histogram_series: Callable[..., list[RawSeries]]) -> None:
    series = histogram_series(FAMILY, BOUNDS, [[0.02, 0.03, 0.4], [2.0], [], [0.07, 0.08]])
    for before, after in zip(series, stretched(series, 1.0), strict=True):
        assert before.labels == after.labels
        assert np.allclose(before.values, after.values)


def test_the_sum_says_where_in_a_wide_bucket_the_observations_lay(
    histogram_series: Callable[..., list[RawSeries]],
) -> None:
    # All in the first bucket (0 … 0.3) but near its lower end: stretched by 5 they stay below 0.3.
    series = histogram_series(FAMILY, [0.3, 0.5, 0.8, 1.5], [[0.010 + 0.0005 * i for i in range(40)]] * 4)
    buckets, _, counts = rows(stretched(series, 5.0))
    assert buckets[0][-1] / counts[-1] > 0.85


def test_quantiles_move_as_the_observations_do(histogram_series: Callable[..., list[RawSeries]]) -> None:
    fine = np.geomspace(0.01, 10.0, 40).round(5).tolist()
    rng = np.random.default_rng(0)
    batches = [rng.lognormal(-2.0, 0.6, 200).tolist() for _ in range(3)]
    doubled = [[2.0 * v for v in batch] for batch in batches]
    got, _, _ = rows(stretched(histogram_series(FAMILY, fine, batches), 2.0))
    true, _, counts = rows(histogram_series(FAMILY, fine, doubled))
    assert np.abs(got - true).max() / counts[-1] < 0.03


def test_a_reset_starts_again_from_zero(histogram_series: Callable[..., list[RawSeries]]) -> None:
    series = histogram_series(FAMILY, BOUNDS, [[0.02], [0.02], [0.02], [0.02]])
    restarted = [
        RawSeries(s.labels, s.times, s.values - np.where(s.times > 1005.0, s.values[2], 0)) for s in series
    ]
    buckets, sums, counts = rows(stretched(restarted, 3.0))
    assert counts.tolist() == [0, 1, 2, 1, 2]
    assert buckets[-1].tolist() == [0, 1, 2, 1, 2]
    assert np.allclose(sums, [0, 0.06, 0.12, 0.06, 0.12])


def test_buckets_of_different_scrapes_are_refused(histogram_series: Callable[..., list[RawSeries]]) -> None:
    series = histogram_series(FAMILY, BOUNDS, [[0.02], [0.02]])
    torn = [RawSeries(series[0].labels, series[0].times + 0.5, series[0].values), *series[1:]]
    with pytest.raises(BundleError, match="not scraped together"):
        find_histograms(torn, frozenset({FAMILY}))
