"""Each shape of a periodic line that was seen in public reports or recordings."""

from __future__ import annotations

import pytest

from diag.model import Window
from diag.records.log_clock import Clock
from diag.records.log_engine import engine_sample
from diag.records.log_lines import messages

CLOCK = Clock(Window(1795989600, 1795990200))
V1 = (
    "Engine 000: Avg prompt throughput: 7.5 tokens/s, Avg generation throughput: 239.2 tokens/s, "
    "Running: 8 reqs, Waiting: 3 reqs, GPU KV cache usage: 91.2%, Prefix cache hit rate: 30.5%"
)
FULL = {
    "generation_tokens_per_second": 239.2,
    "running_requests": 8.0,
    "waiting_requests": 3.0,
    "kv_cache_usage_ratio": 0.912,
    "prefix_cache_hit_ratio": 0.305,
}


@pytest.mark.parametrize(
    "prefix",
    [
        "INFO 11-29 22:00:05 [loggers.py:118] ",
        "DEBUG 11-29 22:00:05 [v1/metrics/loggers.py:127] ",
        "(APIServer pid=1) INFO 11-29 22:00:05 [loggers.py:259] ",
        "(EngineCore_DP1 pid=22) INFO 11-29 22:00:05 [loggers.py:310] ",
        "my-prefix INFO 11-29 22:00:05 [loggers.py:118] ",
        "vllm-0-1  | (APIServer pid=1) INFO 11-29 22:00:05 [loggers.py:273] ",
        "2026-11-29T22:00:05.0Z stdout F INFO 11-30 06:00:05 [loggers.py:123] ",
        "vllm | 2026-11-29T22:00:05Z INFO 11-29 22:00:05 [loggers.py:123] ",
        "[pod/vllm-abc/server] INFO 11-29 22:00:05 [loggers.py:123] ",
        "\x1b[1;36m(APIServer pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m 11-29 22:00:05 [loggers.py:123] ",
        "2026-11-29 22:00:05,123 - vllm.v1.metrics.loggers - INFO - ",
        "Nov 29 22:00:05 node vllm[77]: ",
    ],
)
def test_every_prefix_leads_to_the_same_line(prefix: str) -> None:
    *_, message = messages(prefix + V1, CLOCK)
    assert message.stamp is not None
    assert message.stamp.time == pytest.approx(1795989605, abs=0.2)
    sample = engine_sample(message.text, message.ranks)
    assert sample is not None
    assert sample.values == FULL
    assert sample.prompt_rate == 7.5
    assert sample.engine == "0"


def test_docker_json_and_formatter_json() -> None:
    docker = (
        '{"log":"INFO 11-29 23:00:05 [l.py:1] '
        + V1
        + '\\n","stream":"stdout","time":"2026-11-29T22:00:05.5Z"}'
    )
    formatted = '{"timestamp": "2026-11-29T22:00:05Z", "level": "INFO", "message": "' + V1 + '"}'
    for line, time in ((docker, 1795989605.5), (formatted, 1795989605.0)):
        (message,) = messages(line, CLOCK)
        assert message.stamp is not None
        assert message.stamp.time == time
        sample = engine_sample(message.text, message.ranks)
        assert sample is not None
        assert sample.values == FULL


def test_glued_lines_come_apart() -> None:
    glued = "".join(f"(APIServer pid=1) INFO 11-29 22:00:{at} [l.py:1] {V1}" for at in ("05", "15"))
    found = list(messages(glued, CLOCK))
    assert [message.stamp.time for message in found if message.stamp] == [1795989605.0, 1795989615.0]
    assert all(engine_sample(message.text, {}) for message in found)


def test_version_zero_reads_the_gpu_pool_and_pending() -> None:
    sample = engine_sample(
        "metrics.py:345] Avg prompt throughput: 382.6 tokens/s, Avg generation throughput: 118.5 tokens/s, "
        "Running: 35 reqs, Swapped: 100 reqs, Pending: 115 reqs, GPU KV cache usage: 99.0%, "
        "CPU KV cache usage: 70.4%.",
        {},
    )
    assert sample is not None
    assert sample.values == {
        "generation_tokens_per_second": 118.5,
        "running_requests": 35.0,
        "waiting_requests": 115.0,
        "kv_cache_usage_ratio": 0.99,
    }
    assert sample.hints_all


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("Prefix cache hit rate: GPU: 12.50%, CPU: 0.00%", {"prefix_cache_hit_ratio": 0.125}),
        ("Prefix cache hit rate: GPU: -1.00%, CPU: -1.00%", None),
        ("Running: 1 reqs, Waiting: 0 reqs ", {"running_requests": 1.0, "waiting_requests": 0.0}),
        ("Running: 1 reqs, External prefix cache hit rate: 9.0%", {"running_requests": 1.0}),
        (
            "Running: 1 reqs, Waiting: 0 reqs, Deferred: 4 reqs, XPU + host KV cache usage: 5.0%",
            {
                "running_requests": 1.0,
                "waiting_requests": 0.0,
                "waiting_deferred_requests": 4.0,
                "kv_cache_usage_ratio": 0.05,
            },
        ),
        (
            "SpecDecoding metrics: Mean acceptance length: 2.00, Avg Draft acceptance rate: 50.0%",
            {"spec_decode_acceptance_ratio": 0.5},
        ),
        (
            "Speculative metrics: Draft acceptance rate: 0.250, System efficiency: 0.1",
            {"spec_decode_acceptance_ratio": 0.25},
        ),
        ("Running: many reqs", None),
        ("hello", None),
    ],
)
def test_odd_and_partial_lines(text: str, values: dict[str, float] | None) -> None:
    sample = engine_sample(text, {})
    assert (sample.values if sample else None) == values


def test_sglang_counts_one_rank() -> None:
    text = "Decode batch. #running-req: 8, token usage: 0.12, gen throughput (token/s): 1.5, #queue-req: 0"
    assert engine_sample(text, {"TP": 3}) is None
    (message,) = messages(f"[2026-11-29 22:00:05 DP1 TP0] {text}", CLOCK)
    assert message.ranks == {"DP": 1, "TP": 0}
    sample = engine_sample(message.text, message.ranks)
    assert sample is not None
    assert (sample.engine, sample.values["kv_cache_usage_ratio"]) == ("1", 0.12)
