"""What is written comes back the same, and what must not travel is not in it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diag.errors import BundleError
from diag.model import Event, Window
from diag.signals.frame import RawSeries
from diag.sources.bundle import BundleSource
from diag.sources.gather import gather
from diag.sources.hiding import HostNames, without_secrets
from diag.sources.protocol import Question
from diag.sources.recording import record
from diag.sources.series_files import read_metrics
from diag.sources.writing import BundleText, write_bundle

_WINDOW = Window(1000.0, 1100.5)


def _series(values: list[float], **labels: str) -> RawSeries:
    times = 1000.0 + 0.001 * np.arange(1, len(values) + 1) * 1667
    return RawSeries({"__name__": "up", **labels}, np.round(times, 3), np.array(values, dtype=np.float64))


@pytest.mark.parametrize("name", ["b", "b.zip", "b.tar.gz", "b.tgz"])
def test_every_form_comes_back(tmp_path: Path, name: str) -> None:
    one = _series([1.0, 0.1 + 0.2, 1e-300, -0.0], instance="a:1")
    text = BundleText({"logs/vllm.log": ["one", "zwei ü"]}, [Event(1001.0, "deploy", "web", "new")])
    path = write_bundle(
        tmp_path / name, [one], window=_WINDOW, step_seconds=2.0, incident=Window(1010.0, 1020.0), text=text
    )
    with BundleSource(path) as source:
        assert source.extent() == _WINDOW
        assert source.marked() == (None, Window(1010.0, 1020.0))
        found = next(source.raw(_WINDOW))
        assert found.labels == one.labels
        assert np.array_equal(found.values, one.values)
        assert np.signbit(found.values[-1])
        attached = source.attachments()
        assert gzip.decompress(attached.logs[0].read_bytes()).decode() == "one\nzwei ü\n"
        assert json.loads(attached.events[0].read_text()) == {
            "time": 1001.0, "kind": "deploy", "target": "web", "text": "new",
        }  # fmt: skip


@given(
    st.lists(st.floats(), min_size=1, max_size=30),
    st.dictionaries(st.sampled_from(["a", "le", "pod"]), st.text(min_size=1, max_size=10)),
)
def test_samples_round_trip_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], labels: dict[str, str]
) -> None:
    one = _series(values, **labels)
    path = write_bundle(tmp_path_factory.mktemp("b") / "x", [one], window=_WINDOW, step_seconds=1.0)
    reading = read_metrics(path / "metrics")
    found = list(reading)
    assert reading.bad.count == 0
    assert len(found) == 1
    assert dict(found[0].labels) == dict(one.labels)
    assert np.array_equal(found[0].times, one.times)
    known = ~np.isnan(one.values)
    assert np.array_equal(np.isnan(found[0].values), ~known)
    assert found[0].values[known].tobytes() == one.values[known].tobytes()


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for form in ("zip", "tar.gz"):
        paths = [
            write_bundle(
                tmp_path / f"{n}.{form}", [_series([1.0])], window=_WINDOW, step_seconds=1.0, name="n"
            )
            for n in ("one", "two")
        ]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_nothing_is_overwritten_and_nothing_left_behind(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(BundleError, match="exists already"):
        write_bundle(tmp_path / "b", [], window=_WINDOW, step_seconds=1.0)

    def failing() -> Iterator[RawSeries]:
        yield _series([1.0])
        raise OSError(28, "No space left on device")

    with pytest.raises(BundleError, match="No space left"):
        write_bundle(tmp_path / "c.zip", failing(), window=_WINDOW, step_seconds=1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_a_recording_of_a_recording_is_the_same_case(incidents: Path, tmp_path: Path) -> None:
    source = BundleSource(incidents / "context_growth_reference")
    question = Question(now=1796000000.0)
    with BundleSource(record([source], question, tmp_path / "copy.zip")) as copy:
        one, other = gather([source], question), gather([copy], question)
        assert set(one.series) == set(other.series)
        for name, rows in one.series.items():
            for a, b in zip(rows, other.series[name], strict=True):
                assert a.labels == b.labels
                assert np.array_equal(a.values, b.values, equal_nan=True), name
        assert (one.facts, one.events, one.window) == (other.facts, other.events, other.window)
        assert one.requests is not None
        assert other.requests is not None
        # Spans were joined in, so that they need not travel with all their attributes.
        assert one.requests.drop(columns="source").equals(other.requests.drop(columns="source"))
        assert one.requests["engine_prefill_seconds"].notna().sum() > 100
        assert copy.attachments().traces == ()


def _everything(path: Path) -> str:
    return "\n".join(
        (gzip.decompress(one.read_bytes()) if one.suffix == ".gz" else one.read_bytes()).decode()
        for one in sorted(path.rglob("*")) if one.is_file()
    )  # fmt: skip


def test_host_names_can_be_hashed(incidents: Path, tmp_path: Path) -> None:
    source = BundleSource(incidents / "kv_cache_exhaustion")
    question = Question(now=1796000000.0)
    plain = _everything(record([source], question, tmp_path / "plain"))
    hashed = _everything(record([source], question, tmp_path / "hashed", hash_hosts=True, salt=b"s"))
    again = _everything(record([source], question, tmp_path / "again", hash_hosts=True, salt=b"s"))
    other = _everything(record([source], question, tmp_path / "other", hash_hosts=True, salt=b"t"))
    for name in ("vllm-0", "node-0"):
        assert name in plain
        assert name not in hashed
    assert hashed.replace("hashed", "again") == again
    assert hashed.replace("hashed", "other") != other
    case = gather([BundleSource(tmp_path / "hashed")], question)
    assert case.requests is not None
    engine = case.of("running_requests")[0].labels["instance"]
    assert engine.endswith(":8000")
    assert set(case.requests["instance"].dropna()) == {engine}
    assert case.events[0].target == engine.removesuffix(":8000")


def test_names_are_replaced_whole_only() -> None:
    hosts = HostNames(b"salt")
    hosts.learn({"instance": "gpu-1:9100", "le": "gpu-1"})
    hashed = hosts.name("gpu-1")
    assert hosts.text("gpu-1:80 gpu-10 my-gpu-1 gpu-1. x") == f"{hashed}:80 gpu-10 my-gpu-1 {hashed}. x"
    assert hosts.labels({"instance": "gpu-1:9100", "le": "gpu-1", "job": "gpu-1"}) == {
        "instance": f"{hashed}:9100", "le": "gpu-1", "job": "gpu-1",
    }  # fmt: skip
    assert hosts.name("127.0.0.1:80") == "127.0.0.1:80"


@pytest.mark.parametrize(
    ("line", "gone"),
    [
        ("Received request a: prompt: 'my \\'secret\\' words', params: SamplingParams(n=1)", "words"),
        ("Generated response a: output: 'the answer', finish_reason: stop", "answer"),
        ("prompt_token_ids: [1, 22, 333], lora_request: None", "333"),
        ('{"role": "user", "content": "private text"}', "private"),
        ("non-default args: {'api_key': ['abc123'], 'model': 'tiny'}", "abc123"),
        ("non-default args: {'api_key': 'abc123', 'model': 'tiny'}", "abc123"),
        ("vllm serve tiny --api-key abc123 --port 80", "abc123"),
        ("Authorization: Bearer abcdefgh12345", "abcdefgh12345"),
        ("login hf_abcdefghijklmnop1234", "hf_abc"),
        ("GET http://user:pw123@host/x", "pw123"),
        ("password=hunter2", "hunter2"),
    ],
)
def test_secrets_and_prompts_do_not_travel(line: str, gone: str) -> None:
    cleaned = next(without_secrets([line]))
    assert gone not in cleaned
    assert "[removed]" in cleaned


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-29 22:18:27 [loggers.py:335] Engine 000: Avg prompt throughput: 322.3 tokens/s",
        "non-default args: {'max_num_batched_tokens': 2048, 'long_prefill_token_threshold': 512}",
        "GPU KV cache size: 215,112 tokens, Maximum concurrency for 131,072 tokens per request: 1.64x",
        'INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    ],
)
def test_what_triage_reads_stays(line: str) -> None:
    assert next(without_secrets([line])) == line
