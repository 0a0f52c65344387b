from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from diag.records import BadLines, join_spans, read_requests, read_spans

Write = Callable[..., Path]


def _span(request_id: str, start: float, name: str = "llm_request", **latencies: float) -> dict[str, object]:
    attributes = [{"key": "gen_ai.request.id", "value": {"stringValue": request_id}}]
    attributes += [{"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "77"}}]
    attributes += [
        {"key": f"gen_ai.latency.{key}", "value": {"doubleValue": value}} for key, value in latencies.items()
    ]
    return {"name": name, "startTimeUnixNano": str(int(start * 1e9)), "attributes": attributes}


@pytest.mark.parametrize(
    ("bundle", "requests", "spans"),
    [
        ("context_growth_reference", 184, 185),
        ("context_growth_queueing", 271, 272),
        ("context_growth_cache_on", 198, 199),
    ],
)
def test_recorded_spans_join_every_recorded_request(
    incidents: Path, bundle: str, requests: int, spans: int
) -> None:
    frame = read_requests([incidents / bundle / "requests" / "requests.jsonl.gz"]).frame
    found = read_spans([incidents / bundle / "traces" / "spans.jsonl.gz"])
    joined = join_spans(frame, found)
    assert (len(joined), len(found)) == (requests, spans)
    assert joined["engine_ttft_seconds"].notna().all()
    # The client can never see the first token before the engine made it; the clocks are one host's.
    assert (joined["ttft_seconds"] - joined["engine_ttft_seconds"] > -0.05).all()
    assert (joined["ts"] == frame["ts"]).all()


def test_the_slowest_recorded_request_is_prefill_not_queue(incidents: Path) -> None:
    slow = read_spans([incidents / "context_growth_reference" / "traces" / "spans.jsonl.gz"])
    row = slow.loc[slow["engine_prefill_seconds"].idxmax()]
    assert row["engine_ttft_seconds"] > 30
    assert row["engine_queue_seconds"] < 1


def test_spans_alone_are_records(incidents: Path) -> None:
    path = incidents / "context_growth_queueing" / "traces" / "spans.jsonl.gz"
    read = read_requests([path])
    assert (read.read, read.skipped, read.bad_total) == (272, 12, 0)
    assert set(read.frame["source"]) == {"vllm_spans"}
    assert read.frame["ttft_seconds"].equals(read.frame["engine_ttft_seconds"])
    assert read.frame["prompt_tokens"].notna().all()


def test_all_three_shapes_and_start_up_spans(write_lines: Write) -> None:
    scope = {"spans": [_span("chatcmpl-a", 10, e2e=1.5), _span("x", 9, name="Load model")]}
    path = write_lines(
        "s.jsonl",
        [
            {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [scope]}]},
            {"resource": {}, "scopeSpans": [{"spans": [_span("chatcmpl-b", 11)]}]},
            {"resource": {}, "scope": "vllm", "span": _span("chatcmpl-c", 12)},
            {"nothing": 1},
            "garbage",
        ],
    )
    bad = BadLines()
    frame = read_spans([path], bad=bad)
    assert frame["request_id"].tolist() == ["chatcmpl-a", "chatcmpl-b", "chatcmpl-c"]
    assert frame["ts"].tolist() == [10.0, 11.0, 12.0]
    assert frame["engine_e2e_seconds"][0] == 1.5
    assert frame["prompt_tokens"].tolist() == [77.0] * 3
    assert [line.line for line in bad.kept] == [4, 5]


def test_ids_match_from_exact_to_loose_and_never_across(write_lines: Write) -> None:
    spans = read_spans(
        [
            write_lines(
                "s.jsonl",
                [
                    {"span": _span("chatcmpl-r1-0123abcd", 10, e2e=1.0)},
                    {"span": _span("r2", 10, e2e=2.0)},
                    {"span": _span("chatcmpl-r3", 10, e2e=3.0)},
                    {"span": _span("chatcmpl-r3", 50, e2e=3.5)},
                    {"span": _span("chatcmpl-r4-deadbeef", 10, e2e=4.0)},
                ],
            )
        ]
    )
    ids = ["r1", "chatcmpl-r2", "r3", "r4-cafecafe", "r5"]
    requests = read_requests(
        [
            write_lines(
                "r.jsonl",
                [{"ts": 49 + at / 10, "request_id": item, "tenant": "t"} for at, item in enumerate(ids)],
            )
        ]
    ).frame
    joined = join_spans(requests, spans)
    found = joined.set_index("request_id")["engine_e2e_seconds"]
    assert found["r1"] == 1.0
    assert found["chatcmpl-r2"] == 2.0
    assert found["r3"] == 3.5, "of two spans with one id the one nearest in time"
    assert found[["r4-cafecafe", "r5"]].isna().all()
    assert joined["prompt_tokens"].notna().sum() == 3, "tokens are filled where nobody else knew them"


def test_what_the_client_measured_stays(write_lines: Write) -> None:
    requests = read_requests(
        [write_lines("r.jsonl", [{"ts": 10, "request_id": "a", "prompt_tokens": 5, "ttft_seconds": 9.0}])]
    ).frame
    joined = join_spans(
        requests, read_spans([write_lines("s.jsonl", [{"span": _span("a", 10, time_to_first_token=0.5)}])])
    )
    row = joined.iloc[0]
    assert (row["prompt_tokens"], row["ttft_seconds"], row["engine_ttft_seconds"]) == (5.0, 9.0, 0.5)


def test_empty_sides(write_lines: Write) -> None:
    nothing = read_spans([write_lines("s.jsonl", [])])
    requests = read_requests([write_lines("r.jsonl", [{"ts": 10, "request_id": "a"}])]).frame
    assert join_spans(requests, nothing)["engine_e2e_seconds"].isna().all()
    assert len(join_spans(nothing, nothing)) == 0
