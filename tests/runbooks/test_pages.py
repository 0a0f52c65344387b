"""Every runbook follows the one template, is long enough to help and short enough to read at night."""

from __future__ import annotations

import difflib
import re
from typing import get_args

import pytest

from diag.assets.rules.catalogue import ALERTS
from diag.assets.rules.model import Dashboard
from diag.assets.runbooks import BEGIN, SECTIONS, decision_block, filled, page_ids, stale_runbooks
from diag.assets.symptoms import SYMPTOMS
from diag.hypotheses import CARDS, needs
from diag.triage.weights import WEIGHTS
from tests.runbooks.reading import FOLDER, PAGES, Page, expressions, shell_lines

IDS = frozenset(page_ids())
ALERT_NAMES = {one.name for one in ALERTS}
_EMPTY = re.compile(
    r"\b(TODO|TBD|FIXME|XXX|lorem|tbc)\b|<[a-z][a-z _-]*>|\?\?\?|example\.(com|org)", re.IGNORECASE
)


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> Page:
    """Each runbook in turn."""
    return Page.of(request.param)


def test_hypotheses_symptoms_and_runbooks_are_the_same_ids() -> None:
    assert sorted(IDS) == list(PAGES)
    assert len(IDS) == len(CARDS) + len(SYMPTOMS)


def test_a_page_has_every_section_in_order(page: Page) -> None:
    assert tuple(page.sections) == SECTIONS
    assert f"\n# {page.id}: " in page.text
    assert all(text.strip() for text in page.sections.values())


def test_a_page_is_as_long_as_a_tired_person_reads(page: Page) -> None:
    assert 250 <= len(page.prose.split()) <= 500
    assert max(len(line) for line in page.text.split("---\n", 2)[2].splitlines()) <= 98


def test_at_most_five_steps_each_with_a_command_or_query_and_what_its_result_means(page: Page) -> None:
    assert 3 <= len(page.steps) <= 5
    for step in page.steps:
        after = re.sub(r"```.*?```", "\0", step, flags=re.DOTALL).split("\0")
        said = " ".join(after).split("\n\n", 1)[-1].strip()
        assert re.search(r"[:.]", said), f"{page.id}: no result in {step[:60]!r}"


def test_nothing_is_left_to_fill_in(page: Page) -> None:
    assert _EMPTY.findall(page.by_hand) == []


def test_the_first_command_is_ours_and_its_answer_is_read(page: Page) -> None:
    first = page.sections["First command"]
    assert [line for line in shell_lines(first) if line.startswith("diag triage ")]
    assert len(re.sub(r"```.*?```", "", first, flags=re.DOTALL).split()) >= 25


def test_how_it_is_seen_to_be_over_is_a_query_and_a_value(page: Page) -> None:
    over = page.sections["Verify it is over"]
    assert expressions(over) or [line for line in shell_lines(over) if line.startswith("diag ")]
    assert over.rstrip().endswith((".", ")"))


def test_hypotheses_part_themselves_from_all_that_their_card_calls_alike(page: Page) -> None:
    if page.id in CARDS:
        assert [name for name in CARDS[page.id].look_alikes if f"`{name}`" not in page.by_hand] == []


def test_a_symptom_leads_to_each_of_its_causes(page: Page) -> None:
    if page.id in SYMPTOMS:
        assert [id for id in SYMPTOMS[page.id].causes if f"`{id}`" not in page.by_hand] == []


def test_no_name_of_a_hypothesis_or_symptom_is_misspelt(page: Page) -> None:
    recordings = {path.name for path in (FOLDER.parent / "tests" / "incidents").iterdir()}
    for word in set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page.by_hand)) - recordings:
        near = difflib.get_close_matches(word, IDS, n=1, cutoff=0.85)
        assert word in IDS or not near, f"{page.id}: {word}, meant {near}?"


def test_a_page_names_its_own_alerts_and_only_alerts_that_are(page: Page) -> None:
    fired = page.sections["What fired"]
    assert [one.name for one in ALERTS if one.runbook == page.id and f"`{one.name}`" not in fired] == []
    named = set(re.findall(r"`((?:LLM|GPU|KV|IB)[A-Z]\w+)`", page.by_hand))
    assert named <= ALERT_NAMES


def test_links_lead_to_pages(page: Page) -> None:
    links = re.findall(r"\]\(([^)]+)\)", page.prose)
    assert [link for link in links if not (FOLDER / link).is_file()] == []


def test_the_front_matter_is_what_the_alerts_say(page: Page) -> None:
    here = [one for one in ALERTS if one.runbook == page.id]
    assert page.front["id"] == page.id
    assert page.front["alerts"] == [one.name for one in here]
    assert page.front["severity"] in ({one.severity for one in here} or {"none"})
    known = {f"llmdiag-{name}" for name in get_args(Dashboard)}
    assert page.front["dashboards"]
    assert set(page.front["dashboards"]) <= known
    assert all((FOLDER.parent / "dashboards" / f"{uid}.json").is_file() for uid in page.front["dashboards"])
    if page.id in CARDS and page.id != "unknown":
        assert page.front["needs"]


def test_every_alert_has_a_page_and_points_only_to_causes_on_it() -> None:
    for one in ALERTS:
        assert one.runbook in IDS, one.name
        assert set(one.causes) <= set(CARDS), one.name
        if one.runbook in SYMPTOMS:
            assert set(one.causes) <= set(SYMPTOMS[one.runbook].causes), one.name


def test_the_generated_parts_are_fresh() -> None:
    assert stale_runbooks(FOLDER.parent) == []


def test_the_block_tells_every_cue_and_every_need() -> None:
    for id in set(CARDS) - {"unknown"}:
        block = decision_block(id)
        assert [cue for cue in WEIGHTS[id] if f"- `{cue}`: ×" not in block] == []
        signals = [name for group in needs(id) for name in group if ":" not in name]
        assert [name for name in signals if f"`{name}`" not in block] == []
        assert block.count("*driver") - 1 == sum(weight.driver for weight in WEIGHTS[id].values())


def test_a_page_without_its_marked_block_is_refused() -> None:
    text = Page.of("load_burst").text
    assert filled(text, "load_burst") == text
    with pytest.raises(ValueError, match="one block"):
        filled(text.replace(BEGIN, ""), "load_burst")


def test_stale_parts_are_rewritten() -> None:
    text = Page.of("power_cap").text
    aged = text.replace("severity: warning", "severity: critical").replace("×12", "×13")
    assert aged != text
    assert filled(aged, "power_cap") == text
