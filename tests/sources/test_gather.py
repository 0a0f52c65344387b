"""From several sources and files to one Case: windows, merging, joins, logs."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from diag.errors import NoData, UsageError
from diag.model import Fact, Series, Window
from diag.signals.frame import RawSeries
from diag.sources.bundle import BundleSource
from diag.sources.gather import fetched_signals, gather
from diag.sources.joins import joined
from diag.sources.memory import MemorySource
from diag.sources.planning import planned
from diag.sources.protocol import Attachments, Question

_NOW = 1_796_000_000.0
Engine = Callable[..., list[RawSeries]]


@pytest.fixture
def engine() -> Engine:
    """A small vLLM: running, tokens, start time; 100 scrapes from 1000 on."""

    def build(
        instance: str = "e:8000", every: float = 2.0, started: float = 17.25, pace: float = 10.0
    ) -> list[RawSeries]:
        times = 1000.0 + every * np.arange(100, dtype=np.float64)
        rows = {
            "vllm:num_requests_running": np.full(100, 3.0),
            "vllm:generation_tokens_total": pace * np.arange(100),
            "process_start_time_seconds": np.full(100, started),
            "up": np.ones(100),
        }
        return [
            RawSeries({"__name__": name, "instance": instance, "job": "v"}, times, v)
            for name, v in rows.items()
        ]

    return build


def test_the_grid_follows_scrapes_and_window(engine: Engine) -> None:
    source = MemorySource(engine(every=2.0))
    plan = planned([source], Question(now=_NOW))
    assert (plan.grid.step, plan.grid.window, plan.scrape_seconds) == (2.0, 10.0, 2.0)
    assert plan.window == Window(1000.0, 1198.0)
    long = planned([source], Question(now=_NOW, window=Window(1001.0, 1001.0 + 7200.0)))
    assert long.grid.step == 8.0
    assert long.grid.window == 16.0
    assert long.grid.start % 8.0 == 0.0
    assert 1001.0 <= long.grid.start < 1009.0
    assert long.grid.times.size <= 1001
    slow = planned([MemorySource(engine(every=15.0))], Question(now=_NOW))
    assert (slow.grid.step, slow.grid.window) == (15.0, 60.0)


def test_empty_and_reversed_windows_are_refused(engine: Engine) -> None:
    for window in (Window(1100.0, 1100.0), Window(1100.0, 1000.0)):
        with pytest.raises(UsageError, match="is empty"):
            gather([MemorySource(engine())], Question(now=_NOW, window=window))


def test_a_window_beside_the_data_names_the_data(engine: Engine) -> None:
    with pytest.raises(NoData) as caught:
        gather([MemorySource(engine(), name="here")], Question(now=_NOW, window=Window(9000.0, 9100.0)))
    assert "here holds nothing" in str(caught.value)
    assert "1970-01-01T00:16:40Z to 1970-01-01T00:19:58Z" in str(caught.value)


def test_no_source_and_no_record_is_no_data() -> None:
    with pytest.raises(NoData):
        gather([], Question(now=_NOW))


def test_the_first_of_two_sources_wins_and_a_note_says_so(engine: Engine) -> None:
    one = MemorySource(engine(pace=10.0), name="store")
    other = MemorySource([*engine(pace=99.0), *engine("f:8000", started=3.0)], name="page")
    case = gather([one, other], Question(now=_NOW))
    rows = {row.labels["instance"]: row for row in case.of("generation_tokens_per_second")}
    assert set(rows) == {"e:8000", "f:8000"}
    assert rows["e:8000"].values[50] == pytest.approx(5.0)
    assert "e:8000 is in store and in page; the former's series were used" in case.notes
    assert [ref.ref for ref in case.sources] == ["store", "page"]


def test_one_process_under_two_addresses_counts_once(engine: Engine) -> None:
    case = gather([MemorySource([*engine("10.0.0.1:8000"), *engine("vllm-0:8000")])], Question(now=_NOW))
    assert [row.labels["instance"] for row in case.of("running_requests")] == ["10.0.0.1:8000"]
    assert any("are one process" in note for note in case.notes)
    apart = gather([MemorySource([*engine("a:1"), *engine("b:1", started=18.0)])], Question(now=_NOW))
    assert len(apart.of("running_requests")) == 2
    busier = gather([MemorySource([*engine("a:1"), *engine("b:1", pace=30.0)])], Question(now=_NOW))
    assert len(busier.of("running_requests")) == 2


def test_one_card_seen_by_two_exporters_counts_once() -> None:
    uuid = "b9f9e81b-bee7-34bc-af17-132ef6592740"
    times = 1000.0 + 2.0 * np.arange(50, dtype=np.float64)

    def gpu(name: str, value: float, **labels: str) -> RawSeries:
        return RawSeries({"__name__": name, "instance": "g:9400", **labels}, times, np.full(50, value))

    raw = [
        gpu("DCGM_FI_DEV_GPU_TEMP", 60.0, UUID=f"GPU-{uuid}", gpu="0", Hostname="g"),
        gpu("nvidia_smi_temperature_gpu", 61.0, uuid=uuid),
        gpu("nvidia_smi_utilization_gpu_ratio", 0.5, uuid=uuid),
    ]
    case = gather([MemorySource(raw)], Question(now=_NOW))
    assert [row.producer for row in case.of("gpu_temperature_celsius")] == ["dcgm"]
    assert [row.producer for row in case.of("gpu_utilization_ratio")] == ["nvidia_gpu_exporter"]
    assert any("dcgm's series and in nvidia_gpu_exporter's" in note for note in case.notes)


def _one(signal: str, producer: str, **labels: str) -> Series:
    return Series(signal, labels, np.array([0.0]), np.array([1.0]), producer)


def _joins(*rows: Series) -> dict[str, tuple[str | None, tuple[str, ...], str]]:
    by_signal: dict[str, list[Series]] = {}
    for row in rows:
        by_signal.setdefault(row.signal, []).append(row)
    found, _ = joined(by_signal)
    return {one.instance: (one.node, one.gpus, one.how) for one in found}


def test_joins_by_label_host_and_only_one() -> None:
    node_a = _one("node_load1", "node", instance="a:9100", node="a")
    node_b = _one("node_load1", "node", instance="b:9100", node="b")
    gpus = [_one("gpu_power_watts", "dcgm", instance=f"{n}:9400", node=n, gpu=f"GPU-{n}") for n in ("a", "b")]
    by_label = _one("running_requests", "vllm", instance="10.1.1.1:80", node="b")
    by_host = _one("running_requests", "vllm", instance="a:8000")
    lost = _one("running_requests", "vllm", instance="10.9.9.9:8000")
    assert _joins(node_a, node_b, *gpus, by_label, by_host, lost) == {
        "10.1.1.1:80": ("b", ("GPU-b",), "label"),
        "a:8000": ("a", ("GPU-a",), "host"),
        "10.9.9.9:8000": (None, (), ""),
    }
    assert _joins(node_a, lost) == {"10.9.9.9:8000": ("a", (), "only one")}
    # One machine under two names: the node exporter's address and the GPU exporter's host name.
    assert _joins(node_a, gpus[1], lost) == {"10.9.9.9:8000": ("a", ("GPU-b",), "only one")}
    assert _joins(lost) == {"10.9.9.9:8000": (None, (), "")}


def test_a_pod_label_leads_to_its_own_gpus() -> None:
    rows = [
        _one(
            "gpu_power_watts", "dcgm", instance="x:9400", node="n", gpu=f"GPU-{k}", pod=f"p{k}", namespace="s"
        )
        for k in (1, 2)
    ]
    engine = _one("running_requests", "vllm", instance="10.0.0.2:8000", pod="p2", namespace="s")
    assert _joins(*rows, engine) == {"10.0.0.2:8000": ("n", ("GPU-2",), "label")}


def test_a_lost_join_is_noted_only_where_there_is_something_to_join() -> None:
    engine = _one("running_requests", "vllm", instance="e:1")
    nodes = [_one("node_load1", "node", instance=f"{n}:9100", node=n) for n in ("a", "b")]
    assert "e:1" in joined({"running_requests": [engine], "node_load1": nodes})[1][0]
    assert joined({"running_requests": [engine]})[1] == ()


def test_a_log_fills_gaps_and_never_doubles(incidents: Path) -> None:
    source = BundleSource(incidents / "healthy_a")
    window = source.extent()
    assert window is not None
    whole = gather([source], Question(now=_NOW))
    assert len(whole.of("running_requests")) == 1
    log = incidents / "healthy_a" / "logs" / "vllm.log.gz"
    node_only = [one for one in source.raw(window) if one.labels["instance"].startswith("node")]
    case = gather([MemorySource(node_only, window=window)], Question(now=_NOW, window=window, logs=(log,)))
    rows = case.of("running_requests")
    assert [(row.producer, row.labels["instance"]) for row in rows] == [("log:vllm", "vllm")]
    assert np.array_equal(rows[0].times, case.of("node_load1")[0].times)
    assert np.isnan(rows[0].values).mean() < 0.5
    assert any(note.startswith("taken from a log") for note in case.notes)
    assert "running_requests" not in {gap.signal for gap in case.gaps}


def test_logs_speak_of_the_scraped_instance(incidents: Path) -> None:
    case = gather([BundleSource(incidents / "sequence_limit")], Question(now=_NOW))
    (fact,) = case.facts_named("max_num_seqs")
    assert fact.labels["instance"] == "vllm-0:8000"
    assert fact.value == "2"
    assert [event.kind for event in case.events] == ["config", "restart"]


def test_scrapes_that_stop_in_the_log_are_an_event(incidents: Path) -> None:
    frozen = gather([BundleSource(incidents / "telemetry_fault")], Question(now=_NOW))
    (event,) = [one for one in frozen.events if one.kind == "scrapes_stopped"]
    stall = frozen.page_stalls["vllm-0:8000"][0]
    assert event.target == "vllm-0:8000"
    assert abs(event.time - stall.start) < 20.0
    assert not event.marked
    others = [
        path for path in sorted(incidents.iterdir()) if path.is_dir() and path.name != "telemetry_fault"
    ]
    for path in others:
        case = gather([BundleSource(path)], Question(now=_NOW))
        assert [one for one in case.events if one.kind == "scrapes_stopped"] == [], path.name
        assert case.page_stalls == {}, path.name


def test_the_pool_s_size_is_a_series_too(incidents: Path) -> None:
    case = gather([BundleSource(incidents / "kv_cache_exhaustion")], Question(now=_NOW))
    (size,) = case.of("kv_capacity_tokens")
    assert size.labels["instance"] == "vllm-0:8000"
    known = size.values[~np.isnan(size.values)]
    assert sorted(set(known.tolist())) == [2112.0, 281600.0]
    assert (known[0], size.values[-1]) == (281600.0, 2112.0)
    assert np.isnan(size.values[40:50]).any(), "nobody knows it while the engine was down"
    assert "kv_capacity_tokens" not in {gap.signal for gap in case.gaps}


def test_every_signal_is_a_series_or_a_gap_and_never_both(incidents: Path) -> None:
    case = gather([BundleSource(incidents / "prefix_cache_scattered_long")], Question(now=_NOW))
    missing = {gap.signal for gap in case.gaps}
    assert missing | set(case.series) == set(fetched_signals())
    assert missing & set(case.series) == set()
    assert all(gap.reason and gap.how_to_get for gap in case.gaps)
    assert [join.how for join in case.joins] == ["only one", "only one"]


def test_records_alone_make_a_case(incidents: Path) -> None:
    path = incidents / "healthy_a" / "requests" / "requests.jsonl.gz"
    extent = BundleSource(incidents / "healthy_a").extent()
    case = gather([], Question(now=_NOW, window=extent, requests=(path,)))
    assert case.requests is not None
    assert len(case.requests) > 200
    assert {gap.reason for gap in case.gaps} == {"no source of metrics was given"}
    assert [ref.kind for ref in case.sources] == ["requests"]


def test_a_preset_is_for_the_named_files_only(incidents: Path, tmp_path: Path) -> None:
    mapped = tmp_path / "own.jsonl"
    source = BundleSource(incidents / "healthy_a")
    extent = source.extent()
    assert extent is not None
    mapped.write_text(f'{{"when": {extent.start + 5.0}, "usage": {{"p": 77}}, "first": 0.5}}\n')
    mapping: Mapping[str, str] = {"ts": "when", "prompt_tokens": "usage.p", "ttft_seconds": "first"}
    case = gather([source], Question(now=_NOW, requests=(mapped,), requests_map=mapping))
    alone = gather([source], Question(now=_NOW))
    assert case.requests is not None
    assert alone.requests is not None
    assert len(case.requests) == len(alone.requests) + 1
    assert (case.requests["prompt_tokens"] == 77).sum() == 1
    assert case.requests["ts"].is_monotonic_increasing


def test_unreadable_attachments_are_noted(tmp_path: Path, engine: Engine) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"time": 1010, "kind": "deploy", "target": "t", "text": "x"}\nnonsense\n')
    requests = tmp_path / "r.jsonl"
    requests.write_text('{"ts": 5.0, "ttft_seconds": 1.0}\n')
    attached = Attachments(requests=(requests,), events=(events,))
    case = gather([MemorySource(engine(), attachments=attached)], Question(now=_NOW))
    assert [event.kind for event in case.events] == ["deploy"]
    assert case.requests is None
    assert any("unreadable event" in note for note in case.notes)
    assert any("nothing in this window" in note for note in case.notes)


def test_truncated_request_log_keeps_what_was_read(tmp_path: Path, engine: Engine) -> None:
    lines = "".join(f'{{"ts": {1000 + n / 50}, "ttft_seconds": {n}}}\n' for n in range(5000)).encode()
    cut = tmp_path / "r.jsonl.gz"
    cut.write_bytes(gzip.compress(lines)[:10_000])
    case = gather([MemorySource(engine(), attachments=Attachments(requests=(cut,)))], Question(now=_NOW))
    assert case.requests is not None
    assert 100 < len(case.requests) < 5000
    assert case.notes != ()


def test_marks_of_people_come_from_the_question_first(engine: Engine) -> None:
    source = MemorySource(engine(), incident=Window(1100.0, 1150.0))
    assert gather([source], Question(now=_NOW)).incident == Window(1100.0, 1150.0)
    asked = Question(now=_NOW, incident=Window(1010.0, 1020.0), baseline=Window(1000.0, 1009.0))
    case = gather([source], asked)
    assert (case.incident, case.baseline) == (Window(1010.0, 1020.0), Window(1000.0, 1009.0))


def test_the_same_question_gives_the_same_case(incidents: Path) -> None:
    def told(case: object) -> str:
        return repr(
            [
                getattr(case, name)
                for name in ("gaps", "facts", "events", "joins", "notes", "sources", "page_stalls")
            ]
        )

    cases = [
        gather([BundleSource(incidents / "prefix_cache_scattered_long")], Question(now=_NOW))
        for _ in range(2)
    ]
    assert told(cases[0]) == told(cases[1])
    for name, rows in cases[0].series.items():
        assert [row.labels for row in rows] == [row.labels for row in cases[1].series[name]]


def test_without_records_pandas_is_not_imported(incidents: Path, checkout: Path) -> None:
    program = (
        "import sys\n"
        "from diag.sources.bundle import BundleSource\nfrom diag.sources.gather import gather\n"
        "from diag.sources.memory import MemorySource\nfrom diag.sources.protocol import Question\n"
        f"source = BundleSource({str(incidents / 'healthy_a')!r})\n"
        "case = gather([MemorySource(source.raw(source.extent()))], Question(now=1.0))\n"
        "assert len(case.series) > 40\n"
        "print(sorted({'pandas', 'scipy', 'requests', 'rich'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=checkout, check=True
    )
    assert done.stdout.strip() == "[]"


def test_facts_of_logs_and_metrics_stand_together(incidents: Path) -> None:
    case = gather([BundleSource(incidents / "kv_cache_exhaustion")], Question(now=_NOW))
    blocks: Sequence[Fact] = list(case.facts_named("kv_blocks"))
    assert [fact.value for fact in blocks][:2] == ["8800", "66"]
    assert blocks[0].until is not None
    assert blocks[1].since is not None
    assert blocks[0].until < blocks[1].since


def test_a_window_begins_where_its_data_does(engine: Engine) -> None:
    """An end without data stays: that the engines fell silent may be what happened."""
    asked = Question(now=_NOW, window=Window(0.0, 1500.0))
    case = gather([MemorySource(engine())], asked)
    assert case.window == Window(1000.0, 1500.0)
    assert case.step_seconds == 2.0
    assert "there is no data before 1970-01-01T00:16:40Z: the window begins there" in case.notes


def test_a_first_scrape_that_is_due_is_no_emptiness(engine: Engine) -> None:
    case = gather([MemorySource(engine())], Question(now=_NOW, window=Window(995.0, 1198.0)))
    assert case.window == Window(995.0, 1198.0)
    assert not [note for note in case.notes if "no data before" in note]


def test_what_is_known_earlier_keeps_its_time(engine: Engine, tmp_path: Path) -> None:
    """Request records, and times that a person named; a host that was there before the engine does not."""
    wide = Window(0.0, 1198.0)
    records = tmp_path / "requests.jsonl"
    records.write_text('{"ts": 600.0, "prompt_tokens": 10}\n{"ts": 1100.0, "prompt_tokens": 10}\n', "utf-8")
    known = gather([MemorySource(engine())], Question(now=_NOW, window=wide, requests=(records,)))
    assert known.window == Window(600.0, 1198.0)
    named = gather([MemorySource(engine())], Question(now=_NOW, window=wide, baseline=Window(300.0, 700.0)))
    assert named.window == Window(300.0, 1198.0)
    times = np.arange(0.0, 1200.0, 10.0)
    host = RawSeries({"__name__": "node_load1", "instance": "h:9100"}, times, np.ones(len(times)))
    beside = gather([MemorySource([host, *engine()])], Question(now=_NOW, window=wide))
    assert beside.window == Window(1000.0, 1198.0)


def test_a_scrape_in_vain_is_data(engine: Engine) -> None:
    """An engine that was down when the window began was down: that time is not empty."""
    times = np.arange(0.0, 1000.0, 10.0)
    down = RawSeries({"__name__": "up", "instance": "e:8000", "job": "v"}, times, np.zeros(len(times)))
    other = RawSeries(
        {"__name__": "up", "instance": "h:9100", "job": "n"}, times - 500.0, np.ones(len(times))
    )
    asked = Question(now=_NOW, window=Window(-900.0, 1198.0))
    assert gather([MemorySource([down, other, *engine()])], asked).window == Window(0.0, 1198.0)
