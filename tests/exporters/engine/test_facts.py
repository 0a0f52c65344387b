"""Pages, logs and command lines into facts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diag_exporter.engine.facts import Facts, from_log, merged
from diag_exporter.engine.http import Address, EngineError, parse_address
from diag_exporter.engine.pages import metrics_facts, models_facts, server_info_facts, version_facts
from diag_exporter.engine.process import find_listener, flags_of, process_facts

CAPTURES = Path(__file__).parents[2] / "captures"


def captured(name: str) -> Facts:
    return metrics_facts((CAPTURES / name).read_bytes())


def test_recent_vllm_tells_its_capacity_in_tokens() -> None:
    facts = captured("vllm_0.32.0_kv_pressure.prom")
    assert (facts.producer, facts.kv_capacity_tokens, facts.block_size_tokens) == ("vllm", 35200, 32)
    assert facts.prefix_caching is False
    assert facts.start_time is not None
    assert facts.start_time > 1.7e9
    assert facts.kv_cache_dtype == ""  # auto says nothing


def test_old_vllm_tells_blocks_and_their_size() -> None:
    page = (CAPTURES / "vllm_v0_cache_config_info.prom").read_bytes()
    (line,) = [line for line in page.split(b"\n") if b'num_gpu_blocks="81767"' in line]
    facts = metrics_facts(line)
    assert (facts.kv_capacity_tokens, facts.prefix_caching) == (81767 * 16, False)


def test_sglang() -> None:
    facts = captured("sglang_recent_labels.prom")
    assert (facts.producer, facts.kv_capacity_tokens) == ("sglang", 524288)


def test_data_parallel_engines_add_up_and_tensor_parallel_ranks_do_not() -> None:
    vllm = b"".join(
        b'vllm:cache_config_info{block_size="16",engine="%d",num_gpu_blocks="100",'
        b'enable_prefix_caching="True"} 1.0\n' % rank
        for rank in (0, 1)
    )
    assert metrics_facts(vllm).kv_capacity_tokens == 3200
    assert metrics_facts(vllm).prefix_caching is True
    sglang = b"".join(
        b'sglang:max_total_num_tokens{dp_rank="%d",tp_rank="%d"} 10.0\n' % (dp, tp)
        for dp in (0, 1) for tp in (0, 1)
    )  # fmt: skip
    assert metrics_facts(sglang).kv_capacity_tokens == 20


def test_a_page_with_underscores_for_colons() -> None:
    page = b'vllm_cache_config_info{block_size="16",num_gpu_blocks="None",enable_prefix_caching="None"} 1.0\n'
    facts = metrics_facts(page)
    assert facts.producer == "vllm"
    assert (facts.kv_capacity_tokens, facts.prefix_caching) == (None, None)  # unknown, not off


def test_models_and_versions() -> None:
    body = {"object": "list", "data": [
        {"id": "qwen", "owned_by": "vllm", "max_model_len": 40960}, {"id": "lora", "max_model_len": None},
        {"id": 3}, "x"]}  # fmt: skip
    facts = models_facts(json.dumps(body).encode())
    assert (facts.producer, facts.models, facts.max_lengths) == ("vllm", ("qwen", "lora"), {"qwen": 40960})
    assert version_facts(b'{"version": "0.33.0"}').version == "0.33.0"


def test_server_infos() -> None:
    sglang = {"version": "0.5.9", "disable_radix_cache": False, "max_running_requests": None,
              "chunked_prefill_size": 8192, "context_length": 40960, "page_size": 1, "api_key": "sk-1",
              "internal_states": [{"max_running_requests": 2048, "max_total_num_tokens": 1000}]}  # fmt: skip
    facts = server_info_facts(json.dumps(sglang).encode())
    assert facts == Facts(
        "sglang", "0.5.9", kv_capacity_tokens=1000, block_size_tokens=1, max_num_seqs=2048,
        max_num_batched_tokens=8192, prefix_caching=True, max_length=40960,
    )  # fmt: skip
    vllm = {"vllm_config": {"scheduler_config": {"max_num_seqs": 256, "max_num_batched_tokens": 8192},
                            "cache_config": {"enable_prefix_caching": True}, "model_config": 3}}  # fmt: skip
    facts = server_info_facts(json.dumps(vllm).encode())
    assert (facts.producer, facts.max_num_seqs, facts.prefix_caching) == ("vllm", 256, True)


@given(st.one_of(st.binary(max_size=60), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["data", "id", "max_model_len", "version", "vllm_config", "internal_states",
                         "scheduler_config", "max_num_seqs", "page_size"]), inner, max_size=4),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode())))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_no_page_is_too_odd(body: bytes) -> None:
    for read in (models_facts, version_facts, server_info_facts, metrics_facts):
        facts = read(body)
        assert all(tokens > 0 for tokens in facts.max_lengths.values())
        assert facts.max_num_seqs is None or facts.max_num_seqs > 0


def test_a_direct_source_outranks_a_weaker_one() -> None:
    told = {"version": "0.33.0", "max_num_batched_tokens": "8192"}
    asked = {"flag_max_num_batched_tokens": "4096", "flag_enable_prefix_caching": "False"}
    log = from_log({**told, **asked})
    assert (log.producer, log.max_num_batched_tokens, log.prefix_caching) == ("vllm", 8192, False)
    held = merged((Facts(prefix_caching=False, models=("m", "n"), max_length=100), log))
    assert (held.prefix_caching, held.version, held.max_lengths) == (False, "0.33.0", {"m": 100})


def test_command_lines() -> None:
    words = ["vllm", "serve", "m", "--max-num-seqs", "64", "--max_model_len=8k", "--no-enable-prefix-caching",
             "--api-key", "sk-secret", "--block-size"]  # fmt: skip
    assert flags_of(words) == {
        "max_num_seqs": "64", "max_model_len": 8000, "enable_prefix_caching": False, "block_size": "",
    }  # fmt: skip
    assert flags_of(["--disable-radix-cache", "--context-length", "2K"]) == {
        "disable_radix_cache": True, "context_length": 2048,
    }  # fmt: skip


_SERVER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_real_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, "vllm", "serve", "--max-num-seqs", "77", "--enable-prefix-caching"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        port = int(process.stdout.readline())
        pid = find_listener(port)
        facts = process_facts(process.pid)
        process.communicate("")
    assert pid == process.pid
    assert (facts.producer, facts.max_num_seqs, facts.prefix_caching) == ("vllm", 77, True)
    assert facts.start_time == pytest.approx(time.time(), abs=30)
    assert find_listener(port) is None
    assert process_facts(process.pid) == Facts()


def test_proc_that_cannot_be_read(tmp_path) -> None:
    assert find_listener(80, tmp_path) is None
    assert process_facts(os.getpid(), tmp_path) == Facts()


@pytest.mark.parametrize(
    ("url", "address"),
    [("http://h:1", Address("h", 1, False, "")), ("https://h/v1", Address("h", 443, True, "")),
     ("h:8000", Address("h", 8000, False, "")),
     ("http://[::1]:9/a/metrics/", Address("::1", 9, False, "/a")),
     ("10.0.0.7:8000=http://h:1/v1", Address("h", 1, False, "", "10.0.0.7:8000")),
     ("a b=h:8000", Address("h", 8000, False, "", "a b")),
     ("http://h:1/?a=b", Address("h", 1, False, ""))],
)  # fmt: skip
def test_addresses(url: str, address: Address) -> None:
    assert parse_address(url) == address
    assert parse_address("http://[::1]:9").name == "[::1]:9"
    assert parse_address("pod-0=http://[::1]:9").name == "pod-0"


@pytest.mark.parametrize(
    "url",
    ["", "ftp://h", "http://", "http://h:x", "http://h:99999", "http://[::", "=http://h", "a="],
)
def test_bad_addresses_are_told_in_one_line(url: str) -> None:
    with pytest.raises(EngineError, match="is not an engine's URL") as caught:
        parse_address(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["x" * 129, "a\nb", " a"])
def test_an_engine_is_called_something_that_can_be_a_label(name: str) -> None:
    with pytest.raises(EngineError, match="printable characters") as caught:
        parse_address(f"{name}=http://h:1")
    assert "\n" not in str(caught.value)


def test_nobody_listens_where_a_socket_is_only_bound() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert find_listener(bound.getsockname()[1]) is None
