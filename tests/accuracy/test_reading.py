"""A bundle in memory and the same bundle on disk are one case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diag.accuracy.label import Kind, label_of
from diag.accuracy.reading import NOW, case_at, case_of, description_at
from diag.errors import BundleUnreadable
from diag.model import Verdict
from diag.simulate import load, overlaid, save
from diag.triage import triage


def _verdict(path: Path) -> tuple[Verdict, Verdict]:
    on_disk = triage(case_at(path), now=NOW, version="x")
    in_memory = triage(case_of(load(path)), now=NOW, version="x")
    return on_disk, replace(in_memory, source=on_disk.source)


@pytest.mark.parametrize(
    "name", ["context_growth_reference", "healthy_a", "telemetry_fault", "kv_cache_exhaustion"]
)
def test_memory_and_disk_give_the_same_verdict(name: str, incidents: Path) -> None:
    on_disk, in_memory = _verdict(incidents / name)
    assert in_memory == on_disk
    assert len(on_disk.assessments) > 10


def test_so_do_simulated_parts(tmp_path: Path) -> None:
    path = save(overlaid("healthy_thermal"), tmp_path / "bundle")
    on_disk, in_memory = _verdict(path)
    assert in_memory == on_disk
    assert on_disk.leading == "thermal_throttle"


def test_the_label_never_reaches_the_case(incidents: Path) -> None:
    bundle = load(incidents / "load_burst")
    liar = bundle.with_meta(label={"causes": ["power_cap"], "leading": "power_cap"})
    honest, lied = (triage(case_of(one), now=NOW, version="x") for one in (bundle, liar))
    assert honest == lied


def test_times_are_those_a_bundle_can_hold(incidents: Path) -> None:
    bundle = load(incidents / "load_burst")
    moved = bundle.with_metrics(
        **{
            stem: [replace(one, times=one.times + 1e-4) for one in group]
            for stem, group in bundle.metrics.items()
        }
    )
    before, after = case_of(bundle), case_of(moved)
    assert set(before.series) == set(after.series)
    for name, several in before.series.items():
        for a, b in zip(several, after.series[name], strict=True):
            assert np.array_equal(a.values, b.values, equal_nan=True)


def test_a_label_is_found_in_every_form(incidents: Path) -> None:
    label = label_of(description_at(incidents / "kv_cache_exhaustion")["label"])
    assert label.kind is Kind.CAUSE
    assert label.leading == "config_change"
    assert label.accept == ("config_change", "kv_cache_exhaustion")
    assert label.scope["instances"] == ("vllm-0:8000",)
    assert label_of(description_at(incidents / "healthy_a")["label"]).kind is Kind.HEALTHY
    assert label_of({"leading": "unknown", "causes": []}).kind is Kind.UNKNOWN
    assert label_of({"leading": "a", "causes": ["a", "b"], "case": "double"}).kind is Kind.DOUBLE


def test_a_damaged_archive_is_one_clear_line(tmp_path: Path) -> None:
    broken = tmp_path / "x.zip"
    broken.write_bytes(b"no zip")
    with pytest.raises(BundleUnreadable, match=r"x\.zip"):
        description_at(broken)
