"""Engines' logs: real ones, and the shapes of lines over the years."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from diag_exporter.sessions.feeds.engine_log import EngineLog, log_rows
from diag_exporter.sessions.feeds.engine_startup import startup_facts

RECORDED = Path(__file__).parents[2] / "incidents"

V1 = (
    "(APIServer pid=7) INFO 11-29 22:08:33 [loggers.py:335] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
)


class Followed:
    """A log file, who follows it, and a clock."""

    def __init__(self, path: Path) -> None:
        self.path, self.now = path, 100.0
        self.log = EngineLog(path, "e:8000", clock=lambda: self.now)

    def write(self, *lines: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        while self.log.step():
            pass

    def count(self, name: str) -> float:
        value = log_rows(self.log)[f"llmdiag_engine_{name}_total"][0].value
        assert isinstance(value, float)
        return value


@pytest.fixture
def followed(tmp_path) -> Followed:
    path = tmp_path / "vllm.log"
    path.touch()
    return Followed(path)


def test_all_counters_stand_at_zero_from_the_start(followed: Followed) -> None:
    followed.write("INFO: nothing")
    rows = log_rows(followed.log)
    assert len(rows) == 7
    assert all(row.value == 0 and row.labels == ("e:8000",) for some in rows.values() for row in some)


def test_one_failed_start_is_one_bind_failure(followed: Followed) -> None:
    followed.write(
        "OSError: [Errno 98] Address already in use",
        "ERROR: [Errno 98] error while attempting to bind on address ('::', 8000): address already in use",
    )
    assert followed.count("bind_failures") == 1
    followed.now += 5
    followed.write("torch: The server socket has failed to listen (EADDRINUSE)")
    assert followed.count("bind_failures") == 2


def test_a_failed_start_leaves_the_facts_of_the_engine_that_runs(followed: Followed) -> None:
    running = ("vLLM API server version 0.32.0", "non-default args: {'max_num_seqs': 4}")
    failed = ("vLLM API server version 0.33.0", "non-default args: {'max_num_seqs': 99}")
    taken = ("OSError: [Errno 98] Address already in use", "ERROR: [Errno 98] address already in use")
    held = {"version": "0.32.0", "flag_max_num_seqs": "4", "kv_capacity_tokens": "44800"}
    followed.write(*running, "CPU KV cache size: 44,800 tokens")
    followed.write(*failed, *taken, *failed, *taken)
    assert followed.log.facts() == held
    followed.write("KV connector: [Errno 98] Address already in use")
    assert followed.log.facts() == held


def test_a_port_that_is_taken_later_is_no_failed_start(followed: Followed) -> None:
    followed.write("vLLM API server version 0.31.0", "vLLM API server version 0.32.0")
    followed.write("CPU KV cache size: 44,800 tokens", "[Errno 98] Address already in use")
    assert followed.log.facts() == {"version": "0.32.0", "kv_capacity_tokens": "44800"}


def test_preemptions_by_their_own_numbers(followed: Followed) -> None:
    v0 = "WARNING 10-07 12:00:00 scheduler.py:1] Sequence group 9 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. total_num_cumulative_preemption="  # noqa: E501
    followed.write(f"{v0}1", f"{v0}51")
    assert (followed.count("preemption_warnings"), followed.count("logged_preemptions")) == (2, 51)
    followed.write("vLLM API server version 0.6.0", f"{v0}1")
    assert followed.count("logged_preemptions") == 52
    followed.write(f"{V1}Running: 3 reqs, Waiting: 0 reqs, Preemptions: 4, GPU KV cache usage: 99.0%")
    followed.write(f"{V1}Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 99.0%")
    followed.write("[2026-11-30 00:00:00] KV cache pool is full. Retract requests. #retracted_reqs: 6, x: 1")
    assert (followed.count("preemption_warnings"), followed.count("logged_preemptions")) == (5, 62)


def test_aborts_and_kv_failures_and_deaths(followed: Followed) -> None:
    followed.write(
        "INFO [async_llm.py:1] Aborted request(s) chatcmpl-1.",
        "INFO [launcher.py:195] Route: /inference/v1/abort_requests, Methods: POST",
        "INFO [launcher.py:270] [shutdown] API server: stopping engine client mode=abort timeout=0s",
        "ERROR Failing 3 request(s) due to KV load failure (failure_policy=fail, 5 tokens affected).",
        "WARNING Recovered from KV load failure: 1 request(s) rescheduled",
        "(EngineCore pid=2) ERROR EngineCore encountered a fatal error.",
    )
    assert followed.count("aborted_request_lines") == 1
    assert followed.count("kv_load_failures") == 4
    assert followed.count("fatal_errors") == 1


def test_history_gives_facts_and_no_counts(tmp_path) -> None:
    path = tmp_path / "old.log"
    path.write_text(
        "[Errno 98] Address already in use\nINFO vLLM API server version 0.33.0\n"
        "INFO non-default args: {'max_num_seqs': 64, 'api_key': ['sk-1'], 'model': '/secret/path'}\n"
        "INFO GPU KV cache size: 215,112 tokens, Maximum concurrency for 131,072 tokens per request: 1.64x\n"
    )
    followed = Followed(path)
    followed.write()
    assert followed.count("bind_failures") == followed.count("starts") == 0
    info = {row.labels[1]: row.labels[2] for row in log_rows(followed.log)["llmdiag_engine_startup_info"]}
    assert info == {
        "version": "0.33.0", "flag_max_num_seqs": "64", "kv_capacity_tokens": "215112",
        "max_concurrency": "1.64",
    }  # fmt: skip
    followed.write("[Errno 98] Address already in use")
    assert followed.count("bind_failures") == 1


def test_a_new_start_forgets_the_old_one(followed: Followed) -> None:
    followed.write("vLLM API server version 0.33.0", "Using max model len 4096")
    followed.write("vLLM API server version 0.34.0")
    assert followed.log.facts() == {"version": "0.34.0"}
    assert followed.count("starts") == 2


@pytest.mark.parametrize(
    "greeting",
    [
        "(APIServer pid=7) INFO [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0\r",
        " \x1b[93m▄▄\x1b[0m \x1b[94m▄█\x1b[0m \x1b[1m█     █ ▀▄▀ █\x1b[0m  version \x1b[1m0.32.0\x1b[0m",
        "INFO [api_utils.py:347] vLLM server version 0.32.0, serving model /models/version 7.1",
        "INFO 11-30 00:53:27 [api_server.py:1272] vLLM API server version 0.32.0",
    ],
    ids=["logo", "coloured", "logo off", "before the logo"],
)
def test_each_greeting_begins_a_start(followed: Followed, greeting: str) -> None:
    followed.write(greeting, "INFO CPU KV cache size: 35,200 tokens")
    followed.write(greeting)
    assert followed.log.facts() == {"version": "0.32.0"}
    assert followed.count("starts") == 2


def test_a_restart_in_a_real_log_is_one_start(tmp_path) -> None:
    packed = RECORDED / "kv_cache_exhaustion" / "logs" / "vllm.log.gz"
    followed = Followed(tmp_path / "vllm.log")
    followed.path.touch()
    with gzip.open(packed, "rt", encoding="utf-8", errors="replace", newline="\n") as lines:
        followed.write(*(line.rstrip("\n") for line in lines))
    assert followed.count("starts") == 1
    assert followed.log.facts()["flag_num_gpu_blocks_override"] == "66"


def test_a_log_that_was_rotated_away_counts_on(followed: Followed) -> None:
    followed.write("Aborted request(s) a.")
    followed.path.rename(followed.path.with_suffix(".1"))
    followed.write("Aborted request(s) b.")
    assert followed.count("aborted_request_lines") == 2


def test_no_file_no_rows(tmp_path) -> None:
    log = EngineLog(tmp_path / "none", "e")
    log.step()
    assert log_rows(log) == {}
    assert log.state.error


def test_arguments_that_are_no_literals(followed: Followed) -> None:
    followed.write(
        "non-default args: {'max_num_seqs': 8, 'config': <Thing object>, 'enable_lora': False, 'seed': 3}"
    )
    assert followed.log.facts() == {"flag_max_num_seqs": "8", "flag_enable_lora": "False"}


def test_sglang() -> None:
    line = "[t] server_args=ServerArgs(model_path='m', tp_size=2, disable_radix_cache=False, api_key='k')"
    assert dict(startup_facts(line)) == {
        "producer": "sglang", "flag_tp_size": "2", "flag_disable_radix_cache": "False",
    }  # fmt: skip
    line = (
        "[t] max_total_num_tokens=524288, chunked_prefill_size=8192, max_running_requests=2048, "
        "context_len=40960"
    )
    assert dict(startup_facts(line)) == {
        "kv_capacity_tokens": "524288", "max_num_seqs": "2048", "max_model_len": "40960",
        "max_num_batched_tokens": "8192",
    }  # fmt: skip


_LOGS = sorted(RECORDED.glob("*/logs/vllm.log.gz"))


@pytest.mark.skipif(not _LOGS, reason="no recorded logs in this checkout")
def test_recorded_logs_hold_no_trouble(tmp_path) -> None:
    """What a healthy engine prints by the thousand must not count as trouble."""
    for number, packed in enumerate(_LOGS):
        followed = Followed(tmp_path / f"{number}.log")
        followed.path.touch()
        with gzip.open(packed, "rt", encoding="utf-8", errors="replace") as lines:
            followed.write(*(line.rstrip("\n") for line in lines))
        for name in ("bind_failures", "fatal_errors", "kv_load_failures"):
            assert followed.count(name) == 0, (packed, name)
