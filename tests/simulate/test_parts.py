"""Bundles taken apart and put together again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from diag.errors import BundleUnreadable
from diag.signals.frame import RawSeries
from diag.simulate.parts import Bundle, load, read, save


def small() -> Bundle:
    meta = {"schema": "diag.bundle/1", "name": "small", "window": {"from": 10, "to": 20}, "step_seconds": 2}
    values = np.array([1.5, np.nan, np.inf, 4.0])
    series = RawSeries({"__name__": "up", "instance": "a:1"}, np.array([10.5, 12.5, 14.5, 16.501]), values)
    files = {"logs/vllm.log": b"started\n", "events.jsonl": b""}
    return Bundle(meta, {"engine": (series,)}, ({"ts": 11.0, "ttft_seconds": 0.5},), files)


def test_a_round_trip_keeps_everything(tmp_path: Path) -> None:
    again = load(save(small(), tmp_path / "b"))
    (before,), (after,) = small().series(), again.series()
    assert again.meta == small().meta
    assert dict(after.labels) == dict(before.labels)
    assert np.allclose(after.times, before.times)
    assert np.array_equal(after.values, before.values, equal_nan=True)
    assert again.requests == small().requests
    assert again.files == small().files


def test_saving_twice_gives_equal_bytes(tmp_path: Path) -> None:
    first, second = save(small(), tmp_path / "a"), save(small(), tmp_path / "b")
    names = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert names
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


def test_notes_say_simulated_once_and_first() -> None:
    noted = small().with_note("one.").with_note("two.")
    assert noted.meta["notes"].startswith("SIMULATED: two. one.")
    assert noted.meta["notes"].count("SIMULATED") == 1


def test_a_folder_without_bundle_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleUnreadable, match=r"holds no bundle\.json"):
        load(tmp_path)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00damaged")
    with pytest.raises(BundleUnreadable):
        load(path)


def test_series_lines_are_those_of_the_contract() -> None:
    meta = {"name": "x", "window": {"from": 0, "to": 1}}
    line = {"metric": {"__name__": "m"}, "values": ["NaN", None, 3], "timestamps": [1000, 2000, 3000]}
    bundle = read(
        {"bundle.json": json.dumps(meta).encode(), "metrics/a.jsonl": json.dumps(line).encode()}, "x"
    )
    (series,) = bundle.series("m")
    assert series.times.tolist() == [1.0, 2.0, 3.0]
    assert np.array_equal(series.values, [np.nan, np.nan, 3.0], equal_nan=True)
