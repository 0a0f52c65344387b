"""``diag explain ID`` prints the runbook: whole, without what only tools read, ready to copy from."""

from __future__ import annotations

import json
import re

import pytest

from diag import api
from diag.assets.symptoms import SYMPTOMS
from diag.cli import main
from diag.errors import UsageError
from diag.renderers import RenderOptions
from diag.renderers.pages import render_page
from tests.runbooks.reading import PAGES, Page, expressions, shell_lines


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("id", PAGES)
def test_every_section_command_and_query_is_printed(id: str) -> None:
    page = Page.of(id)
    shown = render_page(api.runbook(id), "console", RenderOptions(width=100))
    for heading in page.sections:
        assert f"\n{heading.upper()}\n" in shown
    joined = re.sub(r" *\\?\n +", " ", shown)
    for line in [*expressions(page.text), *shell_lines(page.text)]:
        assert " ".join(line.split()) in " ".join(joined.split())
    assert "<!--" not in shown
    assert "```" not in shown
    assert not shown.startswith("---")
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize("width", [40, 60, 80])
def test_prose_is_wrapped_and_commands_are_not(width: int) -> None:
    shown = render_page(api.runbook("context_growth"), "console", RenderOptions(width=width))
    wide = [line for line in shown.splitlines() if len(line) > width]
    assert all(line.startswith("  ") for line in wide)
    assert "  diag triage http://prometheus:9090 --last 6h --requests requests.jsonl\n" in shown


def test_a_hypothesis_is_its_card_then_its_runbook(capsys: pytest.CaptureFixture[str]) -> None:
    out = _printed(capsys, "power_cap")
    assert (
        out.index("SIGNS") < out.index("WHAT RULES IT OUT") < out.index("WHAT FIRED") < out.index("SOURCES")
    )
    assert out.count("power_cap: ") == 1


@pytest.mark.parametrize("id", SYMPTOMS)
def test_a_symptom_is_its_runbook(id: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = _printed(capsys, id)
    assert out.startswith(f"{id}: {SYMPTOMS[id].title}")
    assert "STOP THE BLEEDING" in out


def test_markdown_and_json_hold_the_page_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\n## Stop the bleeding\n" in _printed(capsys, "load_burst", "-f", "markdown")
    assert "\n```promql\n" in _printed(capsys, "standstill", "-f", "markdown").replace("   ```", "```")
    assert json.loads(_printed(capsys, "load_burst", "--json"))["page"] == Page.of("load_burst").text
    alone = json.loads(_printed(capsys, "watchdog", "--json"))
    assert alone == {"id": "watchdog", "runbook": "runbooks/watchdog.md", "page": Page.of("watchdog").text}


@pytest.mark.parametrize(("wrong", "meant"), [("standstil", "standstill"), ("power_kap", "power_cap")])
def test_a_near_miss_is_told(wrong: str, meant: str) -> None:
    with pytest.raises(UsageError, match=meant):
        api.runbook(wrong)


def test_a_path_is_no_name() -> None:
    with pytest.raises(UsageError, match="no hypothesis or symptom"):
        api.runbook("../README")
