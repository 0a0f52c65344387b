"""What a postmortem says, keeps and hides."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from diag import api
from diag.api.reports import load_verdict, write_report
from diag.errors import DiagError, UsageError
from diag.model import Verdict
from diag.renderers import load, render
from diag.renderers.redaction import redacted
from diag.renderers.report import HUMAN, Detection, report_of
from diag.renderers.report.html import render as as_html
from diag.renderers.report.kept import written
from diag.renderers.report.postmortem import render as as_markdown


class Reader(HTMLParser):
    """Tags with attributes, and the text that is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.shown: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._silent += tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.shown.append(data)

    @classmethod
    def of(cls, text: str) -> Reader:
        reader = cls()
        reader.feed(text)
        return reader


def test_a_saved_verdict_holds_what_a_report_shows(recorded: Verdict) -> None:
    saved = render(recorded, "json")
    again = load(saved)
    assert render(again, "json") == saved
    assert [one.id for one in again.exhibits] == ["chain", "lengths", "cohorts", "memory"]
    assert again.impact is not None
    assert again.impact.requests == 65
    assert again.impact.cohorts[0].name == "sessions that grew"
    assert again.names["instances"] == ("vllm-0:8000",)
    chain = again.exhibits[0]
    assert chain.panels[0].title == "time to first token"
    assert any(mark.kind == "onset" for mark in chain.marks)
    fitted = [c.label for c in again.exhibits[1].panels[0].curves if not c.points]
    assert [label.split(" (")[0] for label in fitted] == ["before, fitted", "during, fitted"]


def test_an_old_verdict_without_exhibits_still_makes_a_report(recorded: Verdict) -> None:
    bare = replace(recorded, exhibits=(), impact=None, names={})
    text = as_markdown(report_of(load(render(bare, "json"))))
    assert "## Root cause" in text
    assert "## Impact" not in text


def test_the_numbers_of_the_verdict_are_in_both(recorded: Verdict) -> None:
    fired = Detection("LLMTTFTBudgetBurnFast", fired=True, at=recorded.timeline[0].time + 300)
    report = report_of(recorded, detections=[fired])
    page = " ".join(Reader.of(as_html(report, version="0")).shown)
    markdown = as_markdown(report)
    for text in (page, markdown):
        assert "context_growth" in text
        assert "LLMTTFTBudgetBurnFast" in text
        assert "Ruled out" in text
        assert "Could not be checked" in text
        assert "44.9 s" in text
    assert all(f"## {one.title}" in markdown for one in HUMAN)


def test_hostile_texts_change_no_page(hostile: Verdict, recorded: Verdict) -> None:
    page = Reader.of(as_html(report_of(hostile), version="0"))
    plain = Reader.of(as_html(report_of(recorded), version="0"))
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in plain.tags}
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]
    assert not [a for _, a in page.tags if str(a.get("href", "")).startswith("javascript")]
    shown = "".join(page.shown)
    assert "<script>alert(1)</script>" in shown
    assert "{{ 7*7 }}" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_hostile_texts_change_no_markdown(hostile: Verdict) -> None:
    text = as_markdown(report_of(hostile), kept={"well": "we had backups"})
    assert not re.search(r"(?<!\\)<(?!!-- /?human:[a-z]+ -->)", text)
    assert "\x1b" not in text
    assert written(text) == {"well": "we had backups"}
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert not [line for line in heads if "gone" in line.lower() and "</svg>" in line]


def test_what_people_wrote_is_kept(recorded: Verdict, tmp_path: Path) -> None:
    for name, say in (("r.md", "Paged the *chat* team."), ("r.html", "<p>Paged the <b>chat</b> team.</p>")):
        path = tmp_path / name
        write_report(recorded, path)
        first = path.read_text(encoding="utf-8")
        prompt = next(one.prompt for one in HUMAN if one.id == "response")
        filled = first.replace(f"_{prompt}_", say).replace(f'<p class="soft">{prompt}</p>', say)
        assert filled != first
        path.write_text(filled, encoding="utf-8")
        write_report(recorded, path)
        assert path.read_text(encoding="utf-8") == filled


def test_the_alerts_that_watch_for_the_cause_are_named(recorded: Verdict, tmp_path: Path) -> None:
    text = write_report(recorded, tmp_path / "r.md")[0].read_text(encoding="utf-8")
    section = text.partition("## Detection")[2].partition("## ")[0]
    assert "LLMPromptLengthGrowing" in section
    assert "after its condition comes true" in section


def test_figures_lie_beside_markdown(recorded: Verdict, tmp_path: Path) -> None:
    made = write_report(recorded, tmp_path / "r.md")
    assert [p.name for p in made] == ["r.md", "chain.png", "lengths.png", "cohorts.png", "memory.png"]
    text = made[0].read_text(encoding="utf-8")
    for figure in made[1:]:
        assert f"]({figure.relative_to(tmp_path)})" in text
        assert figure.read_bytes().startswith(b"\x89PNG")


def test_names_are_hidden_and_stay_apart(recorded: Verdict) -> None:
    hidden = redacted(recorded, ["hosts", "sessions"])
    text = render(hidden, "json") + as_markdown(report_of(hidden)) + as_html(report_of(hidden), version="0")
    for name in (*recorded.names["instances"], *recorded.names["sessions"]):
        assert not re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text), name
    lead, before = hidden.assessments[0], recorded.assessments[0]
    assert lead.evidence[0].during == pytest.approx(before.evidence[0].during, rel=1e-5)
    assert len(set(lead.scope["sessions"])) == len(before.scope["sessions"])
    assert lead.id == before.id
    assert redacted(recorded, []) == load(render(recorded, "json"))
    with pytest.raises(UsageError, match="cannot redact 'prompts'"):
        redacted(recorded, ["prompts"])


def test_tenants_in_sentences_are_hidden(recorded: Verdict) -> None:
    told = replace(
        recorded, summary="tenant t-a takes all; t-ab does not", names={"tenants": ("t-a", "t-ab")}
    )
    assert redacted(told, ["tenants"]).summary == "tenant tenant-1 takes all; tenant-2 does not"
    assert redacted(told, ["hosts"]).summary == told.summary


def test_wrong_files_are_one_line(recorded: Verdict, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"r\.pdf is no report; end its name in \.md or \.html"):
        write_report(recorded, tmp_path / "r.pdf")
    with pytest.raises(DiagError, match="cannot write"):
        write_report(recorded, tmp_path / "gone" / "r.html")
    (tmp_path / "v.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DiagError, match="not a saved verdict"):
        load_verdict(tmp_path / "v.json")
    assert load_verdict(tmp_path / "bundle.zip") is None


def test_a_healthy_window_is_told_as_one() -> None:
    healthy = api.demo("healthy")
    text = as_markdown(report_of(healthy))
    assert "No incident in this window" in text
    assert healthy.exhibits == ()
    assert healthy.impact is None
    assert "## Root cause" not in text
