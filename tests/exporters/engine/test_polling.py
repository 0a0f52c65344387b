"""Engines asked over real HTTP: well, silent, dead, back again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from diag_exporter.engine import EngineOptions, collectors
from diag_exporter.engine.http import EngineError, Unreachable, get, parse_address
from diag_exporter.engine.lengths import max_length
from diag_exporter.engine.poller import Poller
from diag_exporter.engine.series import FAMILIES, engine_rows
from diag_exporter.families import NoData, Row

CAPTURES = Path(__file__).parents[2] / "captures"
MODELS = json.dumps({"data": [{"id": "qwen", "owned_by": "vllm", "max_model_len": 4096}]}).encode()


def poller(engine, **options) -> Poller:
    return Poller(parse_address(engine.url), time_out=0.5, **options)


def rows(held: Poller) -> dict[str, list[tuple[tuple[str, ...], Any]]]:
    reading = held.reading()
    assert reading is not None
    made = engine_rows({"e": reading})
    assert set(made) <= {family.name for family in FAMILIES}
    return {name: [(row.labels, row.value) for row in some] for name, some in made.items()}


def vllm(engine) -> None:
    engine.answers |= {
        "/version": (200, b'{"version": "0.32.0"}'),
        "/v1/models": (200, MODELS),
        "/metrics": (200, (CAPTURES / "vllm_0.32.0_kv_pressure.prom").read_bytes()),
    }


def test_everything_an_engine_tells(engine) -> None:
    vllm(engine)
    held = poller(engine, token=lambda: "sk-1")
    held.poll()
    page = rows(held)
    assert page["llmdiag_engine_up"] == [(("e",), 1.0)]
    assert 0 < page["llmdiag_engine_health_seconds"][0][1] < 0.5
    assert page["llmdiag_model_max_len_tokens"] == [(("e", "qwen"), 4096.0)]
    assert page["llmdiag_engine_kv_capacity_tokens"] == [(("e",), 35200.0)]
    assert page["llmdiag_engine_prefix_caching_enabled"] == [(("e",), 0.0)]
    assert page["llmdiag_engine_info"] == [(("e", "vllm", "0.32.0", "qwen", "", "32"), 1.0)]
    assert page["llmdiag_engine_start_time_seconds"][0][1] > 1.7e9
    # No endpoint tells these, and this test's process has no such flags: absent, not 0.
    assert "llmdiag_engine_max_num_seqs" not in page
    assert "llmdiag_engine_max_num_batched_tokens" not in page
    assert max_length("qwen") == 4096
    assert max_length("nobody") is None
    assert ("/v1/models", "Bearer sk-1") in engine.seen
    assert ("/health", None) in engine.seen
    held.close()
    assert max_length("qwen") is None


def test_without_the_api_key_the_page_of_metrics_names_the_model(engine) -> None:
    """vLLM guards /v1 by its key, and nothing else."""
    vllm(engine)
    info = {"vllm_config": {"model_config": {"max_model_len": 8000}}, "version": "0.32.0"}
    engine.answers |= {
        "/v1/models": (401, b"{}"),
        "/server_info?config_format=json": (200, json.dumps(info).encode()),
    }
    held = poller(engine)
    held.poll()
    page = rows(held)
    assert page["llmdiag_engine_info"] == [(("e", "vllm", "0.32.0", "tiny", "", "32"), 1.0)]
    assert page["llmdiag_model_max_len_tokens"] == [(("e", "tiny"), 8000.0)]


def test_facts_are_asked_for_seldom_and_again_after_a_return(engine) -> None:
    vllm(engine)
    held = poller(engine)
    for _ in range(3):
        held.poll()
    asked = [path for path, _ in engine.seen]
    assert asked.count("/health") == 3
    assert asked.count("/metrics") == 1
    engine.answers["/health"] = (503, b"")
    held.poll()
    page = rows(held)
    assert page["llmdiag_engine_up"] == [(("e",), 0.0)]
    assert "llmdiag_engine_health_seconds" not in page
    assert (("e", "status"), 1.0) in page["llmdiag_engine_health_failures_total"]
    assert page["llmdiag_model_max_len_tokens"] == [(("e", "qwen"), 4096.0)]  # what went down is still known
    engine.answers |= {"/health": (200, b""), "/version": (200, b'{"version": "0.33.0"}')}
    held.poll()
    assert rows(held)["llmdiag_engine_info"][0][0][2] == "0.33.0"


def test_only_health(engine) -> None:
    held = poller(engine)
    held.poll()
    page = rows(held)
    assert page["llmdiag_engine_info"] == [(("e", "", "", "", "", ""), 1.0)]
    assert "llmdiag_engine_kv_capacity_tokens" not in page
    assert "llmdiag_engine_prefix_caching_enabled" not in page


@pytest.mark.parametrize(("how", "reason"), [("hang", "timeout"), ("drip", "timeout")])
def test_an_engine_that_does_not_answer(engine, answers, how: str, reason: str) -> None:
    engine.answers["/health"] = answers[how](3.0)
    held = poller(engine)
    began = time.monotonic()
    held.poll()
    assert time.monotonic() - began < 1.5
    page = rows(held)
    assert page["llmdiag_engine_up"] == [(("e",), 0.0)]
    assert (("e", reason), 1.0) in page["llmdiag_engine_health_failures_total"]
    assert "llmdiag_engine_info" not in page


def test_nobody_there(engine) -> None:
    held = poller(engine)
    engine.close()
    held.poll()
    assert (("e", "refused"), 1.0) in rows(held)["llmdiag_engine_health_failures_total"]
    with pytest.raises(Unreachable):
        get(parse_address(engine.url), "/x", seconds=0.5)


def test_a_page_without_end_is_cut(engine) -> None:
    engine.answers["/metrics"] = (200, b"x" * (9 << 20))
    reply = get(parse_address(engine.url), "/metrics")
    assert 8 << 20 <= len(reply.body) < 9 << 20


def test_a_slow_page_does_not_cost_the_others(engine, answers) -> None:
    vllm(engine)
    engine.answers["/metrics"] = answers["drip"](3.0)
    held = poller(engine)
    held.poll()
    page = rows(held)
    assert "llmdiag_engine_kv_capacity_tokens" not in page
    assert page["llmdiag_model_max_len_tokens"] == [(("e", "qwen"), 4096.0)]


def made(options: EngineOptions) -> list[Any]:
    """Collectors of which it is known that they can be closed."""
    return list(collectors(options))


def settled(collector, wanted: str, seconds: float = 10.0) -> dict[str, list[Row]]:
    """What ``collector`` says once it says ``wanted``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            rows_now = collector.collect(time.time())
        except NoData:
            rows_now = {}
        if wanted in rows_now:
            return rows_now
        time.sleep(0.02)
    raise AssertionError(f"{wanted} never came")


def test_collectors_with_a_log(engine, tmp_path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("vLLM API server version 0.33.0\nnon-default args: {'max_num_seqs': 64}\n")
    (tmp_path / "spare.log").write_text("")
    vllm(engine)
    del engine.answers["/version"]
    options = EngineOptions(
        (engine.url,), (log, tmp_path / "spare.log"), health_seconds=0.05, facts_seconds=0.1, time_out=0.5
    )
    facts, logs = made(options)
    try:
        assert settled(facts, "llmdiag_engine_max_num_seqs")["llmdiag_engine_max_num_seqs"] == [
            Row((engine.name,), 64.0)
        ]
        with log.open("a") as file:
            file.write("ERROR: [Errno 98] address already in use\n")
        until = time.monotonic() + 5
        while time.monotonic() < until:
            counted = logs.collect(0.0)["llmdiag_engine_bind_failures_total"]
            if counted[0].value:
                break
            time.sleep(0.02)
        assert counted == [Row((engine.name,), 1.0), Row(("spare.log",), 0.0)]
    finally:
        facts.close()
        logs.close()


def test_a_given_name_labels_facts_and_log(engine, tmp_path) -> None:
    """Prometheus may scrape the engine under an address that is not the exporter's."""
    log = tmp_path / "vllm.log"
    log.write_text("")
    vllm(engine)
    options = EngineOptions((f"vllm-0.svc:8000={engine.url}",), (log,), health_seconds=0.05, time_out=0.5)
    facts, logs = made(options)
    try:
        page = settled(facts, "llmdiag_model_max_len_tokens")
        assert {row.labels[0] for some in page.values() for row in some} == {"vllm-0.svc:8000"}
        assert {row.labels[0] for some in logs.collect(0.0).values() for row in some} == {"vllm-0.svc:8000"}
    finally:
        facts.close()
        logs.close()


def test_one_engine_that_hangs_holds_up_no_other(engine, other, answers) -> None:
    engine.answers["/health"] = answers["hang"](5.0)
    (collector,) = made(EngineOptions((engine.url, other.url), health_seconds=0.05, time_out=2.0))
    try:
        began = time.monotonic()
        page = settled(collector, "llmdiag_engine_up")
        assert page["llmdiag_engine_up"] == [Row((other.name,), 1.0)]
        assert time.monotonic() - began < 1.5
    finally:
        collector.close()


def test_wrong_urls() -> None:
    with pytest.raises(EngineError, match="twice"):
        collectors(EngineOptions(("http://h:1", "h:1")))
    with pytest.raises(EngineError, match="not an engine's URL"):
        collectors(EngineOptions(("ftp://x",)))
    assert collectors(EngineOptions()) == []


def test_without_readings_there_is_nothing_to_say(engine) -> None:
    (collector,) = made(EngineOptions((engine.url,)))
    try:
        with pytest.raises(NoData):
            collector.collect(0.0)
    finally:
        collector.close()
