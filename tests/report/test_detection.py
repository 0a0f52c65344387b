"""How an incident was noticed: by whom, how late, and what a report says where nobody knows."""

from __future__ import annotations

from dataclasses import replace

import promql_parser
import pytest

from diag.api.reports import report_for
from diag.exhibits import Fired
from diag.model import Verdict
from diag.renderers import load, render
from diag.renderers.redaction import redacted
from diag.renderers.report import Report
from diag.renderers.report.postmortem import render as as_markdown


def _said(report: Report) -> dict[str, str]:
    return {line.about: line.text for line in report.detection}


@pytest.fixture
def onset(recorded: Verdict) -> float:
    assert recorded.incident is not None
    return recorded.incident.start


def test_without_a_record_of_alerts_none_is_called_silent(recorded: Verdict) -> None:
    report = report_for(recorded)

    said = _said(report)
    assert report.detection_note.startswith("The data holds no record of alerts")
    assert "LLMPromptLengthGrowing" in said
    assert not [text for text in said.values() if "did not fire" in text or "fired" in text]
    # Twenty minutes after the first thing that moved, and the recording ends before.
    assert said["LLMPromptLengthGrowing"] == (
        "fires 20 min after its condition comes true; not before 21:17:27 UTC, when this data had ended"
    )
    assert "Noticed" not in {line.about for line in report.facts}


def test_the_first_alert_says_how_late_the_incident_was_noticed(recorded: Verdict, onset: float) -> None:
    fired = (Fired("LLMKVCacheSaturated", onset + 75, onset + 140), Fired("TeamAlert", onset + 30))
    report = report_for(replace(recorded, fired=fired))

    facts = {line.about: line.text for line in report.facts}
    assert facts["Noticed"] == "20:58:26 UTC by TeamAlert, 30 s after the onset"
    said = _said(report)
    assert said["LLMKVCacheSaturated"] == "fired at 20:59:11 UTC, 75 s after the onset"
    assert said["LLMPromptLengthGrowing"] == "watches for this cause and did not fire in this window"
    assert report.detection_note == ""
    rows = {row.cells[1]: row.head for row in report.timeline}
    assert rows["alert LLMKVCacheSaturated fires"] == "20:59:11"
    assert rows["alert LLMKVCacheSaturated is over"] == "21:00:16"
    assert "alert TeamAlert is over" not in rows


def test_an_alert_that_came_before_the_data_has_no_delay(recorded: Verdict) -> None:
    report = report_for(replace(recorded, fired=(Fired("LLMKVCacheSaturated", None),)))

    assert _said(report)["LLMKVCacheSaturated"] == "fired before this window already"
    assert "Noticed" not in {line.about for line in report.facts}
    assert not [row for row in report.timeline if "alert" in row.cells[1]]


def test_a_sign_of_life_shows_that_rules_were_evaluated_and_is_no_alarm(recorded: Verdict) -> None:
    report = report_for(replace(recorded, fired=(Fired("LLMWatchdog", None),)))

    assert "LLMWatchdog" not in _said(report)
    assert set(_said(report).values()) == {"watches for this cause and did not fire in this window"}


def test_whoever_posted_an_alert_and_the_store_are_one(recorded: Verdict, onset: float) -> None:
    known = replace(recorded, fired=(Fired("LLMKVCacheSaturated", onset + 90),))
    report = report_for(known, [Fired("LLMKVCacheSaturated", onset + 75)])

    rows = [row.head for row in report.timeline if row.cells[1] == "alert LLMKVCacheSaturated fires"]
    assert rows == ["20:59:11"]


def test_what_fired_is_saved_and_keeps_its_name_when_hosts_are_hidden(
    recorded: Verdict, onset: float
) -> None:
    told = replace(recorded, fired=(Fired("LLMKVCacheSaturated", onset + 75, None),))

    assert load(render(told, "json")).fired == told.fired
    assert redacted(told, ["hosts"]).fired == told.fired


def test_the_appendix_holds_the_queries_behind_what_is_told(recorded: Verdict) -> None:
    assert {one.producer for one in recorded.queries} == {"vllm"}
    signals = [one.signal for one in recorded.queries]
    assert signals[0] == "ttft_seconds_p95"
    assert {"kv_cache_usage_ratio", "preemptions_per_second", "waiting_requests"} <= set(signals)
    for one in recorded.queries:
        promql_parser.parse(one.promql)
    assert load(render(recorded, "json")).queries == recorded.queries
    appendix = as_markdown(report_for(recorded)).partition("## Appendix: queries")[2]
    assert [one.promql for one in recorded.queries if one.promql not in appendix] == []


def test_a_hostile_query_cannot_leave_its_block(recorded: Verdict) -> None:
    evil = replace(recorded.queries[0], promql="```\n# gone ````")
    text = as_markdown(report_for(replace(recorded, queries=(evil,))))

    assert text.rstrip().endswith("`````promql\n``` # gone ````\n`````")


def test_an_alert_that_was_posted_makes_no_other_silent(recorded: Verdict, onset: float) -> None:
    """Nor does one of somebody else's rules in the store: ours may not be loaded there."""
    posted = report_for(recorded, [Fired("LLMKVCacheSaturated", onset + 75)])
    theirs = report_for(replace(recorded, fired=(Fired("TeamAlert", onset + 30),)))

    for report in (posted, theirs):
        assert not [text for text in _said(report).values() if "did not fire" in text]
        assert report.detection_note.startswith("What fired is known")
