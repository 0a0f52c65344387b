from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from diag.errors import RecordsError
from diag.model import Window
from diag.records import LogRead, read_log
from diag.signals import SIGNALS

Write = Callable[..., Path]
WindowOf = Callable[[str], Window]

RUNNING = "[loggers.py:1] Engine 000: Running: 4 reqs, Waiting: 1 reqs"


def _read(incidents: Path, window_of: WindowOf, name: str) -> LogRead:
    path = incidents / name / "logs" / "vllm.log.gz"
    return read_log(path, window=window_of(name), component="vllm-0:8000")


def _text(incidents: Path, name: str) -> str:
    return gzip.decompress((incidents / name / "logs" / "vllm.log.gz").read_bytes()).decode()


def _values(read: LogRead, signal: str, instance: str = "vllm-0:8000") -> list[float]:
    (series,) = (
        item for item in read.series if item.signal == signal and item.labels["instance"] == instance
    )
    return [float(value) for value in series.values]


def _fact(read: LogRead, name: str) -> str:
    (fact,) = (item for item in read.facts if item.name == name)
    return fact.value


@pytest.mark.parametrize("bundle", ["load_burst", "context_growth_fast", "healthy_a", "sequence_limit"])
def test_every_recorded_stats_line_in_the_window_becomes_a_point(
    incidents: Path, window_of: WindowOf, bundle: str
) -> None:
    read = _read(incidents, window_of, bundle)
    window = window_of(bundle)
    expected: list[float] = []
    for clock, count in re.findall(r"INFO 11-29 (\S+) .*Running: (\d+) reqs", _text(incidents, bundle)):
        if window.contains(datetime.fromisoformat(f"2026-11-29T{clock}Z").timestamp()):
            expected.append(float(count))
    assert len(expected) > 15
    assert _values(read, "running_requests") == expected
    for series in read.series:
        assert series.signal in SIGNALS
        assert series.producer == "log:vllm"
        assert (np.diff(series.times) > 0).all()
        assert series.times.size == series.values.size
        assert window.contains(series.times[0])
        assert window.contains(series.times[-1])


def test_load_burst_shows_in_the_log(incidents: Path, window_of: WindowOf) -> None:
    read = _read(incidents, window_of, "load_burst")
    assert max(_values(read, "running_requests")) == 16
    assert max(_values(read, "waiting_requests")) > 40
    assert max(_values(read, "kv_cache_usage_ratio")) < 0.2
    rates = _values(read, "http_requests_per_second")
    assert np.mean(rates[-8:]) > 4 * np.mean(rates[:6])
    assert read.notes == ()


def test_the_limit_that_no_metric_carries(incidents: Path, window_of: WindowOf) -> None:
    read = _read(incidents, window_of, "sequence_limit")
    (limit,) = (fact for fact in read.facts if fact.name == "max_num_seqs")
    window = window_of("sequence_limit")
    assert limit.value == "2"
    assert limit.source == "log:vllm.log.gz"
    assert limit.labels == {"instance": "vllm-0:8000"}
    assert limit.since is not None
    assert window.contains(limit.since)
    (restart,) = (event for event in read.events if event.kind == "restart")
    assert restart.time == limit.since
    assert not restart.marked
    assert not any(event.kind == "engine_error" for event in read.events), "a shutdown is no engine error"


def test_start_up_facts_of_a_recording(incidents: Path, window_of: WindowOf) -> None:
    read = _read(incidents, window_of, "context_growth_reference")
    expected = {
        "engine_version": "0.32.0", "prefix_caching": "off", "chunked_prefill": "on",
        "max_num_seqs": "16", "max_num_batched_tokens": "2048", "max_model_len_tokens": "32768",
        "long_prefill_threshold_tokens": "512",
        "kv_blocks": "1100", "block_size_tokens": "32",
        "kv_capacity_tokens": "35200", "max_concurrency": "1.07",
        "model": "tiny",
        "cuda_graphs": "off", "speculative_decoding": "off", "full_prompt_reservation": "off",
    }  # fmt: skip
    assert {fact.name: fact.value for fact in read.facts} == expected


def test_scrapes_stop_while_requests_go_on(incidents: Path, window_of: WindowOf) -> None:
    read = _read(incidents, window_of, "telemetry_fault")
    start = window_of("telemetry_fault").start
    before = [part for part in read.scrapes if part.end - start < 60]
    after = [part for part in read.scrapes if part.start - start > 80]
    assert min(part.scrapes for part in before) >= 4
    assert max(part.scrapes for part in after) == 0
    assert min(part.requests for part in after) > 0


def test_the_access_lines_of_a_recording_are_all_counted_once(incidents: Path) -> None:
    text = _text(incidents, "healthy_a")
    stamped = [match.start() for match in re.finditer(r"INFO 11-29", text)]
    between = text[stamped[0] : stamped[-1]]
    path = incidents / "healthy_a" / "logs" / "vllm.log.gz"
    read = read_log(path, window=Window(0, 4e9), component="x")
    # Window(0, 4e9) lies around 2033: the year of the log is the nearest one, the counts are the same.
    assert sum(part.requests for part in read.scrapes) == between.count('"POST /v1')
    assert sum(part.scrapes for part in read.scrapes) == between.count('"GET /metrics')


def test_headings_part_two_engines(incidents: Path, window_of: WindowOf) -> None:
    read = _read(incidents, window_of, "prefix_cache_scattered_long")
    assert {series.labels["instance"] for series in read.series} == {"vllm-0", "vllm-1"}
    hits = _values(read, "prefix_cache_hit_ratio", "vllm-1")
    assert hits[0] > 0.8 > hits[-1]


def test_several_starts_each_hold_until_the_next(write_lines: Write) -> None:
    start = (
        "(APIServer pid={pid}) INFO 11-29 {time} [utils.py:1] non-default args: {{'max_num_seqs': {seqs}}}"
    )
    path = write_lines(
        "v.log",
        [
            "INFO 11-29 21:00:00 [api_server.py:1] vLLM API server version 0.9.1",
            start.format(pid=1, time="21:00:00", seqs=64),
            "INFO:     Application startup complete.",
            "INFO 11-29 22:00:00 [api_server.py:1] vLLM API server version 0.10.0",
            start.format(pid=2, time="22:00:01", seqs=8),
        ],
    )
    read = read_log(path, window=Window(1795986000, 1795990000), component="v")
    limits = [fact for fact in read.facts if fact.name == "max_num_seqs"]
    versions = [fact for fact in read.facts if fact.name == "engine_version"]
    assert [fact.value for fact in limits] == ["64", "8"]
    assert [fact.value for fact in versions] == ["0.9.1", "0.10.0"]
    assert limits[0].until == versions[1].since == 1795989600.0
    assert limits[1].until is None


def _stated(write_lines: Write, *lines: str) -> dict[str, str]:
    path = write_lines("a.log", [f"INFO 11-29 22:00:0{i} [a.py:1] {line}" for i, line in enumerate(lines)])
    read = read_log(path, window=Window(1795986000, 1795990000), component="a")
    return {fact.name: fact.value for fact in read.facts}


def test_what_the_arguments_lack_is_at_its_default(write_lines: Write) -> None:
    facts = _stated(write_lines, "non-default args: {'max_num_seqs': 64}")
    assert (facts["cuda_graphs"], facts["speculative_decoding"]) == ("on", "off")
    assert "cuda_graph_tokens_max" not in facts


def test_graphs_and_speculation_are_read_from_the_arguments(write_lines: Write) -> None:
    facts = _stated(
        write_lines,
        "non-default args: {'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 3}, "
        "'compilation_config': {'cudagraph_capture_sizes': [1, 2, 8]}, 'max_loras': 2}",
    )
    assert (facts["speculative_decoding"], facts["speculative_tokens"]) == ("on", "3")
    assert (facts["cuda_graphs"], facts["cuda_graph_tokens_max"], facts["max_loras"]) == ("on", "8", "2")


def test_a_truncated_capture_size_is_the_one_in_force(write_lines: Write) -> None:
    facts = _stated(
        write_lines,
        "non-default args: {'compilation_config': {'max_cudagraph_capture_size': 24}}",
        "Truncating max_cudagraph_capture_size to 4",
    )
    assert facts["cuda_graph_tokens_max"] == "4"


def test_sglang_says_the_same_in_its_server_arguments(write_lines: Write) -> None:
    facts = _stated(
        write_lines,
        "server_args=ServerArgs(model_path='m', speculative_algorithm=None, cuda_graph_max_bs=32, "
        "disable_cuda_graph=False, max_loras_per_batch=8)",
    )
    assert (facts["cuda_graphs"], facts["cuda_graph_tokens_max"]) == ("on", "32")
    assert (facts["speculative_decoding"], facts["max_loras"]) == ("off", "8")


def test_version_zero_blocks_give_the_capacity(write_lines: Write) -> None:
    path = write_lines(
        "v0.log",
        [
            "INFO 11-29 22:00:00 distributed_gpu_executor.py:57] # GPU blocks: 50231, # CPU blocks: 8192",
            "INFO 11-29 22:00:00 executor.py:61] Maximum concurrency for 32768 tokens per request: 24.53x",
        ],
    )
    read = read_log(path, window=Window(1795989000, 1795990000), component="v")
    assert _fact(read, "kv_blocks") == "50231"
    assert _fact(read, "block_size_tokens") == "16"
    assert _fact(read, "kv_capacity_tokens") == str(50231 * 16)


def test_sglang_start_and_batches(write_lines: Write) -> None:
    path = write_lines(
        "sglang.log",
        [
            "[2026-11-29 21:59:00] server_args=ServerArgs(model_path='m', disable_radix_cache=True, port=1)",
            "[2026-11-29 22:00:00 TP0] max_total_num_tokens=512000, chunked_prefill_size=8192, "
            "max_prefill_tokens=16384, max_running_requests=2048, context_len=131072",
            "[2026-11-29 22:00:10 TP0] Decode batch. #running-req: 8, #token: 62531, token usage: 0.12, "
            "gen throughput (token/s): 186.64, #queue-req: 3",
            "[2026-11-29 22:00:10 TP1] Decode batch. #running-req: 8, #token: 62531, token usage: 0.99, "
            "gen throughput (token/s): 1.0, #queue-req: 9",
            "[2026-11-29 22:00:20 TP0] Prefill batch [7], #new-seq: 1, #new-token: 30, #cached-token: 10, "
            "full token usage: 0.20, swa token usage: 0.90, #running-req: 9, #queue-req: 4, ",
            "[2026-11-29 22:00:30 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, "
            "#new_tokens_gained: 100, #new_token_ratio: 0.5 -> 0.9",
        ],
    )
    read = read_log(path, window=Window(1795989500, 1795990000), component="s")
    facts = {fact.name: fact.value for fact in read.facts}
    assert facts["kv_capacity_tokens"] == "512000"
    assert (facts["max_num_seqs"], facts["prefix_caching"], facts["chunked_prefill"]) == ("2048", "off", "on")
    assert _values(read, "running_requests", "s") == [8.0, 9.0]
    assert _values(read, "waiting_requests", "s") == [3.0, 4.0]
    assert _values(read, "kv_cache_usage_ratio", "s") == [0.12, 0.90]
    assert _values(read, "prefix_cache_hit_ratio", "s") == [0.25]
    assert _values(read, "generation_tokens_per_second", "s") == [186.64]
    assert {series.producer for series in read.series} == {"log:sglang"}
    assert [(event.kind, event.time) for event in read.events] == [("preemption", 1795989630.0)]


def test_trouble_lines_become_unmarked_events(write_lines: Write) -> None:
    at = "11-29 22:00:0"
    path = write_lines(
        "t.log",
        [
            f"WARNING {at}0 scheduler.py:1089] Sequence group 165 is preempted by PreemptionMode.SWAP mode "
            "because there is not enough KV cache space. total_num_cumulative_preemption=151",
            f"ERROR {at}1 [launcher.py:1] [Errno 98] error while attempting to bind: address already in use",
            f"(EngineCore pid=7) ERROR {at}2 [core.py:1] EngineCore encountered a fatal error.",
            f"ERROR {at}3 [core.py:1] Failing 3 request(s) due to KV load failure (failure_policy=fail).",
            f"INFO {at}4 [async_llm.py:1] Aborted request(s) chatcmpl-1.",
            f"INFO {at}5 [async_llm.py:1] Aborted request(s) chatcmpl-2.",
            "Nov 29 22:00:06 node kernel: NVRM: Xid (PCI:0000:9a:00): 79, pid=1, GPU has fallen off the bus.",
            "[Sun Nov 29 22:00:07 2026] Out of memory: Killed process 123 (python3) total-vm:1kB",
        ],
    )
    read = read_log(path, window=Window(1795989500, 1795990000), component="v")
    kinds = [event.kind for event in read.events]
    assert kinds == [
        "preemption", "bind_failure", "engine_error", "kv_load_failure", "abort", "xid", "oom_kill",
    ]  # fmt: skip
    assert [event.time - 1795989600 for event in read.events] == [0, 1, 2, 3, 4, 6, 7]
    assert not any(event.marked for event in read.events)
    xid = read.events[5]
    assert xid.target == "0000:9a:00"
    assert xid.text.startswith("Xid 79: pid=1")
    assert "(2 such lines)" in read.events[4].text


def test_a_log_in_another_zone_is_recognised_and_said(write_lines: Write) -> None:
    lines = [f"INFO 11-30 03:{minute:02d}:00 {RUNNING}" for minute in range(30, 40)]
    # 22:00 to 22:10 UTC on a clock at +05:30.
    read = read_log(write_lines("v.log", lines), window=Window(1795989600, 1795990200), component="v")
    assert len(_values(read, "running_requests", "v")) == 10
    assert any("UTC+05:30" in note for note in read.notes)


def test_an_old_log_is_not_bent_into_the_window(write_lines: Write) -> None:
    lines = [f"INFO 11-2{day} {hour:02d}:00:00 {RUNNING}" for day in (1, 2) for hour in range(24)]
    read = read_log(write_lines("v.log", lines), window=Window(1795989600, 1795990200), component="v")
    assert read.series == ()
    assert any("outside the window" in note for note in read.notes)


def test_a_zone_beside_the_time_wins(write_lines: Write) -> None:
    line = (
        "2026-11-29T22:05:00.500Z stdout F (APIServer pid=1) INFO 11-30 06:05:00 [loggers.py:1] "
        "Engine 000: Running: 4 reqs, Waiting: 1 reqs"
    )
    read = read_log(write_lines("v.log", [line]), window=Window(1795989600, 1795990200), component="v")
    assert [series.times.tolist() for series in read.series] == [[1795989900.5]] * 2
    assert read.notes == ()


def test_the_year_turns_inside_a_log(write_lines: Write) -> None:
    lines = [
        "INFO 12-31 23:59:55 [loggers.py:1] Engine 000: Running: 1 reqs, Waiting: 0 reqs",
        "INFO 01-01 00:00:05 [loggers.py:1] Engine 000: Running: 2 reqs, Waiting: 0 reqs",
    ]
    new_year = 1798761600.0
    read = read_log(write_lines("v.log", lines), window=Window(new_year - 60, new_year + 60), component="v")
    assert read.series[0].times.tolist() == [new_year - 5, new_year + 5]


def test_prompt_throughput_keeps_its_meaning_by_version(write_lines: Write) -> None:
    line = (
        "INFO 11-29 22:00:0{at} [loggers.py:1] Engine 000: Avg prompt throughput: 10.0 tokens/s, "
        "Running: 1 reqs, GPU KV cache usage: 1.0%"
    )
    window = Window(1795989500, 1795990000)
    for version, signal, sure in (
        ("0.10.0", "prompt_tokens_per_second", True),
        ("0.19.1", "computed_prompt_tokens_per_second", True),
        (None, "prompt_tokens_per_second", False),
    ):
        start = (
            [f"INFO 11-29 22:00:00 [api_server.py:1] vLLM API server version {version}"] if version else []
        )
        read = read_log(write_lines("v.log", [*start, line.format(at=5)]), window=window, component="v")
        assert _values(read, signal, "v") == [10.0]
        assert bool(read.notes) is not sure


def test_preemptions_in_the_line_are_a_rate_and_silence_is_not_zero(write_lines: Write) -> None:
    line = (
        "INFO 11-29 22:00:{at} [loggers.py:1] Engine 000: Running: 1 reqs, Waiting: 0 reqs, "
        "{extra}GPU KV cache usage: 99.0%"
    )
    lines = [
        line.format(at="00", extra=""),
        line.format(at="10", extra="Preemptions: 25, "),
        line.format(at="20", extra=""),
    ]
    read = read_log(write_lines("v.log", lines), window=Window(1795989500, 1795990000), component="v")
    assert _values(read, "preemptions_per_second", "v") == [2.5]
    assert [event.kind for event in read.events] == ["preemption"]


def test_an_absent_log_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="No such file"):
        read_log(tmp_path / "none.log", window=Window(0, 1), component="v")


_PIECES = st.sampled_from(
    [
        f"INFO 11-29 22:00:00 {RUNNING}", "non-default args: {'a': ",
        "INFO 13-45 99:99:99 ", "version 9.9", "# GPU blocks: 0,",
        "Maximum concurrency for 1 tokens per request: 1.0x",
        "NVRM: Xid (PCI:1): 5", "[2026-02-30 00:00:00]", '"GET /metrics HTTP/1.1" 200', "# vllm-0",
        '{"log": 5, "time": "x"}',
        "2026-11-29T22:00:00Z ", "LLM engine (v1.2", "\x1b[32m", "a | ", "Nov 31 10:00:00 ",
        "max_total_num_tokens=, ",
        "29:61:61 ", "KV cache size: ,,, tokens",
    ]
)  # fmt: skip


_GLUE = st.sampled_from(["", "\n"])
_RAW = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda glue, parts: glue.join(parts).encode(), _GLUE, st.lists(_PIECES, max_size=8)),
)


@given(raw=_RAW)
@example(raw=b"\x1f\x8b\x08\x00broken")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=120)
def test_nothing_in_a_log_raises(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(raw)
    read = read_log(path, window=Window(1795989500, 1795990000), component="v")
    assert all(series.times.size == series.values.size > 0 for series in read.series)
    assert all(event.time <= 1795990000 for event in read.events)


def test_container_names_part_components_only_when_there_are_several(write_lines: Write) -> None:
    window = Window(1795989500, 1795990000)
    one = [f"vllm-0 | INFO 11-29 22:00:0{at} {RUNNING}" for at in (0, 5)] + ["metric | value", "foo | bar"]
    read = read_log(write_lines("v.log", one), window=window, component="c")
    assert {series.labels["instance"] for series in read.series} == {"c"}
    two = [*one, f"vllm-1 | INFO 11-29 22:00:05 {RUNNING}"]
    read = read_log(write_lines("v.log", two), window=window, component="c")
    assert {series.labels["instance"] for series in read.series} == {"vllm-0", "vllm-1"}


def test_data_parallel_engines_of_one_server_stay_apart(write_lines: Write) -> None:
    lines = [f"INFO 11-29 22:00:05 {RUNNING.replace('000', f'00{at}')}" for at in (0, 1)]
    read = read_log(write_lines("v.log", lines), window=Window(1795989500, 1795990000), component="c")
    labels = [dict(series.labels) for series in read.series if series.signal == "running_requests"]
    assert labels == [{"instance": "c", "engine": "0"}, {"instance": "c", "engine": "1"}]
