"""The pages have the names, labels and bounds of the real ones, and not too many series."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from diag.simulate.observed import HISTOGRAMS
from diag.simulate.parts import Bundle
from diag.simulate.plan import Fabric, Replica, Settings, Shown
from diag.simulate.telemetry import show
from diag.simulate.telemetry.sglang import rebinned
from diag.simulate.telemetry.vllm import FAMILIES

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? \S+$")
_LABEL = re.compile(r'(\w+)="')
_TARGET_LABELS = {"instance", "job", "node", "pod", "namespace", "Hostname"}
_CONFIGURED = ("vllm:nixl_", "vllm:mooncake_", "vllm:spec_decode_", "vllm:lora_")


def _page(path: Path) -> dict[str, set[str]]:
    """Names on a recorded page, with the names of their labels."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in path.read_text().splitlines():
        if not line.startswith("#") and (match := _SAMPLE.match(line)):
            found[match[1]] |= set(_LABEL.findall(match[2] or ""))
    return found


def _shown(bundle: Bundle, prefix: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for series in bundle.series():
        name = series.labels["__name__"]
        if name.startswith(prefix):
            found[name] |= set(series.labels) - _TARGET_LABELS - {"__name__"}
    return found


def _bounds(path: Path, family: str) -> list[str]:
    return re.findall(rf'^{family}_bucket\{{[^}}]*\ble="([^"]+)"', path.read_text(), re.MULTILINE)


def test_vllm_names_and_labels_are_those_of_the_recorded_page(run_of, captures):
    recorded = _page(captures / "vllm_0.32.0_kv_pressure.prom")
    shown = _shown(show(run_of()), "vllm:")
    assert len(shown) > 40
    for name, labels in shown.items():
        assert name in recorded
        assert labels == recorded[name], name


def test_http_and_process_names_are_those_of_the_recorded_page(run_of, captures):
    recorded = _page(captures / "vllm_0.32.0_kv_pressure.prom")
    bundle = show(run_of())
    for prefix in ("http_", "process_"):
        shown = {
            series.labels["__name__"]: set(series.labels) - _TARGET_LABELS - {"__name__"}
            for series in bundle.metrics["engine"]
            if series.labels["__name__"].startswith(prefix)
        }
        assert shown
        for name, labels in shown.items():
            assert labels == recorded[name], name


def test_vllm_bounds_are_those_of_the_recorded_page(run_of, captures):
    path = captures / "vllm_0.32.0_kv_pressure.prom"
    settings = Settings(max_model_len_tokens=32_768)  # as the recorded engine was started
    bundle = show(run_of(replicas=(Replica("vllm-0:8000", settings=settings),)))
    for ours, family in FAMILIES.items():
        shown = [series.labels["le"] for series in bundle.series(f"{family}_bucket")]
        assert shown == _bounds(path, family), ours


def test_bounds_of_lengths_end_at_the_longest_context(run_of):
    bundle = show(run_of(replicas=(Replica("vllm-0:8000"),)))
    shown = [series.labels["le"] for series in bundle.series("vllm:request_prompt_tokens_bucket")]
    assert shown[-2:] == ["100000.0", "+Inf"]


def test_cache_configuration_has_every_label_of_the_recorded_page(run_of, captures):
    recorded = _page(captures / "vllm_0.32.0_kv_pressure.prom")["vllm:cache_config_info"]
    info = next(show(run_of()).series("vllm:cache_config_info")).labels
    assert set(info) - _TARGET_LABELS - {"__name__"} == recorded
    assert info["num_gpu_blocks"] == "20000"
    assert info["kv_cache_size_tokens"] == "320000"
    assert info["kv_cache_max_concurrency"] == "2.44140625"


def test_what_is_not_configured_has_no_series(run_of):
    names = {series.labels["__name__"] for series in show(run_of()).series()}
    assert not any(name.startswith(_CONFIGURED) for name in names)
    assert not any(name.startswith(("node_infiniband_", "master_")) for name in names)


def test_a_fabric_brings_connector_store_and_infiniband(run_of, captures):
    bundle = show(run_of(fabric=Fabric(flaps=((600.0, 640.0, "node-1"),))))
    names = {series.labels["__name__"] for series in bundle.series()}
    assert {"vllm:nixl_num_failed_transfers_total", "vllm:nixl_xfer_time_seconds_bucket"} <= names
    assert "vllm:mooncake_store_operation_failed_keys_total" in names
    assert set(_page(captures / "mooncake_master.prom")) | {"master_key_count"} <= names
    recorded = _page(captures / "node_exporter_infiniband.prom")
    shown = {name for name in names if name.startswith("node_infiniband_")}
    assert len(shown) > 8
    # The fixture's card has no symbol errors; the collector's source names them.
    assert shown - set(recorded) <= {"node_infiniband_symbol_error_total"}
    state = {series.labels["node"]: series.values for series in bundle.series("node_infiniband_state_id")}
    assert state["node-0"].min() == 4.0
    assert state["node-1"].min() == 1.0


def test_speculation_shows_its_counters(run_of):
    settings = Settings(speculative_tokens=4)
    run = run_of(replicas=(Replica("vllm-0:8000", settings=settings),))
    run.engines[0].counters["draft_tokens"] = 40.0 * run.times
    run.engines[0].counters["accepted_tokens"] = 28.0 * run.times
    bundle = show(run)
    drafts = next(bundle.series("vllm:spec_decode_num_drafts_total")).values
    tokens = next(bundle.series("vllm:spec_decode_num_draft_tokens_total")).values
    assert np.diff(drafts).sum() == pytest.approx(np.diff(tokens).sum() / 4.0, abs=1.0)


def test_sglang_names_are_those_of_its_sources(run_of, captures):
    known = {
        line.split("\t")[0]
        for line in (captures / "sglang_metric_names_by_version.tsv").read_text().splitlines()[1:]
        if "newest" in line
    }
    shown = _shown(show(run_of(shown=Shown(engine="sglang"))), "sglang:")
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert len(families) > 15
    assert families <= known
    recorded = _page(captures / "sglang_recent_labels.prom")
    for name in ("sglang:num_running_reqs", "sglang:token_usage", "sglang:max_total_num_tokens"):
        assert shown[name] == recorded[name]


def test_sglang_counters_appear_with_their_first_increment(run_of):
    run = run_of(shown=Shown(engine="sglang"))
    run.engines[0].counters["preemptions"] = np.where(run.times < 900.0, 0.0, 3.0)
    series = list(show(run).series("sglang:num_retracted_requests_total"))
    assert [one.labels["instance"] for one in series] == ["vllm-0:8000"]
    assert series[0].times[0] >= run.plan.start + 890.0
    assert (series[0].values == 3.0).all()


def test_rebinning_keeps_the_number_and_the_order_of_observations():
    bounds = HISTOGRAMS["ttft_seconds"]
    rng = np.random.default_rng(1)
    seen = rng.lognormal(0.0, 1.0, 5000)
    counts = np.zeros((1, len(bounds) + 1))
    np.add.at(counts[0], np.searchsorted(np.array(bounds), seen), 1.0)
    moved = rebinned(bounds, counts, (0.5, 1.0, 2.0))
    assert moved.sum() == 5000
    assert (moved >= 0.0).all()
    assert moved[0, :2].sum() == (seen <= 1.0).sum()  # a bound that both have
    assert moved[0, :3].sum() == pytest.approx((seen <= 2.0).sum(), rel=0.05)


@pytest.mark.parametrize(
    ("gpu", "prefix", "source"),
    [
        ("nvidia_gpu_exporter", "nvidia_smi_", "tests/captures/nvidia_gpu_exporter_h200_load.prom"),
        ("llmdiag", "llmdiag_", "docs/exporter.md"),
        ("dcgm", "DCGM_", "deploy/dcgm/counters.csv"),
    ],
)
def test_gpu_names_are_documented(run_of, checkout, gpu, prefix, source):
    shown = _shown(show(run_of(shown=Shown(gpu=gpu))), prefix)
    known = set(re.findall(rf"\b{prefix}\w+", (checkout / source).read_text()))
    links = {"LINK_WIDTH", "MAX_LINK_WIDTH", "LINK_GEN", "MAX_LINK_GEN"}
    assert len(shown) > 15
    assert set(shown) - known <= {f"DCGM_FI_DEV_PCIE_{name}" for name in links}


def test_a_page_stays_lean(run_of):
    bundle = show(run_of(fabric=Fabric(), replicas=(Replica("vllm-0:8000"),)))
    own = [one for one in bundle.metrics["engine"] if one.labels["instance"] == "vllm-0:8000"]
    assert len(own) <= 350
