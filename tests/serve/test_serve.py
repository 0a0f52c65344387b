"""Alerts in, verdicts out: repeats, storms, restarts, strangers and hostile bodies."""

from __future__ import annotations

import json
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from diag.errors import SourceUnreachable, UsageError
from diag.model import Verdict, Window
from diag.serve.messages import message
from diag.serve.running import runbook_text
from diag.serve.settings import Settings
from diag.serve.store import Store
from diag.serve.webhook import BadBody, parsed

Start = Any


START = "2026-11-29T20:58:30Z"
START_UNIX = 1795985910.0


def posted(*alerts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An Alertmanager webhook body, version 4, as Alertmanager 0.25 sends it."""
    return {
        "version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "diag",
        "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://127.0.0.1:9093",
        "alerts": list(alerts), **fields,
    }  # fmt: skip


def alert(fingerprint: str = "f0", starts: str = START, ends: str = "", **labels: str) -> dict[str, Any]:
    """One alert in it; ``ends``: when it was resolved."""
    return {
        "status": "resolved" if ends else "firing", "fingerprint": fingerprint, "startsAt": starts,
        "endsAt": ends or "0001-01-01T00:00:00Z", "generatorURL": "http://127.0.0.1:9090/graph",
        "labels": {"alertname": "LLMTTFTBudgetBurnFast", **labels}, "annotations": {"summary": "slow"},
    }  # fmt: skip


def test_an_alert_gets_its_verdict_and_its_page(start: Start) -> None:
    service = start()
    answered = service.post(posted(alert(instance="vllm-0:8000")))
    assert (answered.status_code, answered.json()) == (200, {"accepted": 1, "new": 1})
    service.until_idle()
    (window,) = service.asked
    assert window.start == pytest.approx(START_UNIX - 600, abs=60)
    (told,) = service.get("/api/verdicts").json()
    assert told["leading"] == "context_growth"
    assert told["ends_at"] is None
    assert service.get(f"/api/verdicts/{told['id']}").json()["schema"] == "diag.verdict/1"
    page = service.get(f"/incidents/{told['id']}")
    assert "context_growth" in page.text
    assert 'http-equiv="refresh"' in page.text
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    link = service.get("/triage?alertname=LLMTTFTBudgetBurnFast&instance=vllm-0:8000")
    assert (link.status_code, link.headers["location"]) == (302, f"/incidents/{told['id']}")
    assert service.get("/triage?alertname=Other").status_code == 404
    assert "watchdog" in service.get("/runbooks/watchdog").text
    assert service.get("/runbooks/..%2f..%2fpyproject").status_code == 404
    assert service.get("/-/healthy").text == "ok\n"
    metrics = service.get("/metrics").text
    assert (
        'llmdiag_triage_finding{verdict="context_growth",state="supported",instance="vllm-0:8000"' in metrics
    )
    assert "llmdiag_triage_duration_seconds_count 1\n" in metrics


def test_a_repeat_is_no_news_and_a_resolve_closes_the_page(start: Start) -> None:
    service = start()
    for _ in range(3):
        service.post(posted(alert()))
        service.until_idle()
    assert len(service.asked) == 1
    service.post(posted(alert(ends="2026-11-29T21:30:00Z"), status="resolved"))
    (told,) = service.get("/api/verdicts").json()
    assert told["ends_at"] == pytest.approx(START_UNIX + 1890)
    page = service.get(f"/incidents/{told['id']}").text
    assert "resolved" in page
    assert 'http-equiv="refresh"' not in page
    assert "llmdiag_triage_finding{" not in service.get("/metrics").text


def test_a_resolve_that_overtakes_its_alert_wins(start: Start) -> None:
    service = start()
    service.post(posted(alert(ends="2026-11-29T21:30:00Z"), status="resolved"))
    service.post(posted(alert()))
    service.until_idle()
    (told,) = service.get("/api/verdicts").json()
    assert told["ends_at"] is not None
    assert len(service.asked) == 1


def test_five_hundred_alerts_in_a_moment_ask_few_questions(start: Start) -> None:
    service = start()
    bodies = [posted(*(alert(f"f{n}-{i}", instance=f"vllm-{i}:8000") for i in range(10))) for n in range(50)]
    with ThreadPoolExecutor(8) as pool:
        codes = [r.status_code for r in pool.map(service.post, bodies + bodies)]
    assert codes == [200] * 100
    service.until_idle()
    assert len(service.store.incidents(1000)) == 500
    assert len(service.asked) == 1


def test_memory_stays_bounded_in_a_storm(start: Start) -> None:
    service = start()
    service.post(posted(alert("first")))
    service.until_idle()
    tracemalloc.start()
    try:
        for n in range(100):
            service.post(posted(*(alert(f"f{n}-{i}", instance="x" * 200) for i in range(20))))
        service.until_idle()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 20e6


def test_too_many_questions_ask_the_sender_to_come_again(start: Start) -> None:
    service = start(working=False, most_waiting=3)
    codes = [
        service.post(posted(alert(f"f{n}", starts=f"2026-11-29T20:1{n}:00Z"))).status_code for n in range(5)
    ]
    assert codes == [200, 200, 200, 503, 503]
    # What only ends is always taken.
    ended = posted(alert("f0", starts="2026-11-29T20:10:00Z", ends="2026-11-29T20:30:00Z"), status="resolved")
    assert service.post(ended).status_code == 200
    service.worker.start()
    service.until_idle()
    assert service.post(posted(alert("f3", starts="2026-11-29T20:13:00Z"))).status_code == 200


def test_a_restart_in_mid_triage_loses_nothing(start: Start, tmp_path: Path) -> None:
    entered, release = threading.Event(), threading.Event()

    def slow(_: Window) -> Verdict:
        entered.set()
        release.wait(20)
        raise AssertionError("the process ended here")

    path = tmp_path / "verdicts.sqlite"
    first = start(judge=slow, store=Store(path))
    first.post(posted(alert("a"), alert("b", starts="2026-11-29T20:50:00Z")))
    assert entered.wait(10)
    second = start(store=Store(path))
    second.until_idle()
    leads = {one["fingerprint"]: one["leading"] for one in second.get("/api/verdicts").json()}
    first.worker.stop()
    release.set()
    assert leads == {"a": "context_growth", "b": "context_growth"}
    assert len(second.asked) == 2


def test_what_still_fires_is_judged_again(start: Start) -> None:
    service = start(again_seconds=0.2)
    service.post(posted(alert()))
    for _ in range(400):
        if len(service.asked) >= 3:
            break
        threading.Event().wait(0.02)
    assert len(service.asked) >= 3
    service.post(posted(alert(ends="2026-11-29T21:30:00Z"), status="resolved"))
    service.until_idle()
    seen = len(service.asked)
    threading.Event().wait(0.8)
    assert len(service.asked) <= seen + 1


def test_a_source_that_does_not_answer_is_told_on_the_page(start: Start) -> None:
    def broken(_: Window) -> Verdict:
        raise SourceUnreachable("http://prometheus:9090 does not answer", hint="check the address")

    service = start(judge=broken)
    service.post(posted(alert()))
    service.until_idle()
    (told,) = service.get("/api/verdicts").json()
    assert told["state"] == "failed"
    assert "does not answer" in service.get(f"/incidents/{told['id']}").text
    assert service.get(f"/api/verdicts/{told['id']}").status_code == 404
    assert "llmdiag_triage_failures_total 1" in service.get("/metrics").text


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not an Alertmanager webhook"),
        (b"{", "not an Alertmanager webhook"),
        (b"[]", "not an Alertmanager webhook"),
        (b'{"version": "4"}', "alerts"),
        (b'{"version": "3", "alerts": []}', "version 3 is unknown"),
        (json.dumps(posted({"status": "firing"})).encode(), "not an Alertmanager webhook"),
        (json.dumps(posted(alert(""))).encode(), "without fingerprint"),
        (json.dumps(posted(alert(starts="yesterday"))).encode(), "not an Alertmanager webhook"),
        (b"\xff\xfe\x00", "not an Alertmanager webhook"),
    ],
)
def test_a_wrong_body_is_one_line(start: Start, body: bytes, says: str) -> None:
    answered = start(working=False).post(body)
    assert answered.status_code == 400
    assert says in answered.text
    assert answered.text.count("\n") == 1


def test_grafanas_superset_and_a_firing_end_are_taken() -> None:
    one = {**alert(), "dashboardURL": "http://g", "values": {"B": 1}, "endsAt": "2026-11-29T21:02:30Z"}
    (taken,) = parsed(json.dumps(posted(one, orgId=1)).encode())
    assert taken.firing
    with pytest.raises(BadBody, match="3000 alerts at once"):
        parsed(json.dumps(posted(*(alert(f"f{n}") for n in range(3000)))).encode())


def test_a_body_without_end_is_refused_while_it_comes(start: Start) -> None:
    service = start(working=False, most_bytes=10_000)
    assert service.post(b"x" * 20_000).status_code == 413

    def chunks() -> Any:
        for _ in range(100):
            yield b"x" * 1000

    answered = requests.post(f"{service.url}/webhook", data=chunks(), timeout=10)
    assert answered.status_code == 413
    assert service.get("/-/healthy").status_code == 200


def test_a_token_is_asked_of_everybody(start: Start) -> None:
    service = start(working=False, token="s3cret")
    assert service.get("/").status_code == 401
    assert service.post(posted(alert())).status_code == 401
    assert service.get("/", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert service.get("/", headers={"Authorization": "Basic !!"}).status_code == 401
    assert service.get("/", headers={"Authorization": "Bearer s3cret"}).status_code == 200
    assert service.get("/", auth=("anybody", "s3cret")).status_code == 200
    assert service.get("/-/healthy").status_code == 200


def test_beyond_loopback_a_token_is_needed() -> None:
    with pytest.raises(UsageError, match=r"0\.0\.0\.0 can be reached from elsewhere; give --token-file"):
        Settings("0.0.0.0", 9878)
    assert Settings("0.0.0.0", 9878, token="x").address == "http://0.0.0.0:9878"
    assert Settings("::1", 9878).address == "http://[::1]:9878"


def test_no_get_changes_anything(start: Start) -> None:
    service = start(working=False)
    service.post(posted(alert()))
    before = [(one.id, one.question.state) for one in service.store.incidents()]
    for path in (
        "/",
        "/webhook",
        "/incidents/1",
        "/triage?alertname=x",
        "/api/verdicts",
        "/metrics",
        "/-/ready",
    ):
        service.get(path)
    assert [(one.id, one.question.state) for one in service.store.incidents()] == before
    assert service.get("/webhook").status_code == 405


def test_hostile_labels_stay_text(start: Start) -> None:
    service = start(working=False)
    evil = '<script>alert(1)</script>\x1b[31m\u202e"}\n# HELP x'
    service.post(posted(alert(instance=evil, tenant="A" * 10_000)))
    page = service.get("/").text
    assert "<script>" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    service.worker.start()
    service.until_idle()
    for line in service.get("/metrics").text.splitlines():
        assert line.startswith(("#", "llmdiag_"))
        assert "\x1b" not in line


def test_the_message_says_the_sentence_and_what_was_ruled_out(start: Start, known: Verdict) -> None:
    told: list[Any] = []
    service = start(tell=lambda verdict, incidents: told.append(message(verdict, incidents, "http://diag")))
    service.post(posted(alert(alertname="<!channel> Slow")))
    service.until_idle()
    for _ in range(100):
        if told:
            break
        threading.Event().wait(0.02)
    (body,) = told
    assert body["leading"] == "context_growth"
    assert known.summary.split(":")[0] in body["text"]
    assert "Ruled out: " in body["text"]
    assert body["url"] == "http://diag/incidents/1"
    assert "<!channel>" not in body["text"]


def test_runbooks_are_those_that_ship() -> None:
    assert "context_growth" in (runbook_text("context_growth") or "")
    assert runbook_text("slow_first_token") is not None
    assert runbook_text("../pyproject") is None


def test_a_first_try_that_fails_takes_nobodys_message(start: Start, known: Verdict) -> None:
    told: list[Verdict] = []
    tries: list[Window] = []

    def second_time(window: Window) -> Verdict:
        tries.append(window)
        if len(tries) == 1:
            raise SourceUnreachable("http://prometheus:9090 does not answer", hint="check the address")
        return known

    service = start(judge=second_time, again_seconds=0.2, tell=lambda verdict, _: told.append(verdict))
    service.post(posted(alert()))
    for _ in range(400):
        if len(tries) >= 4:
            break
        threading.Event().wait(0.02)
    assert len(tries) >= 4
    assert len(told) == 1
