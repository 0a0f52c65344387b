"""Every ``diag`` line of every runbook is one that our own command line takes."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer.main

from diag.assets.rules.catalogue import ALERTS
from diag.assets.rules.model import Alert
from diag.cli.app import app
from diag.cli.times import duration_seconds
from tests.runbooks.reading import PAGES, Page, shell_lines

LINES = [(id, line) for id in PAGES for line in shell_lines(Page.of(id).text) if line.startswith("diag ")]


def _parsed(words: list[str]) -> dict[str, Any]:
    """What the real parser makes of ``words``, without running the command."""
    command: Any = typer.main.get_command(app)
    context: Any = None
    while hasattr(command, "resolve_command"):
        context = command.context_class(command, parent=context, info_name=command.name)
        _, command, words = command.resolve_command(context, words)
    ready = command.make_context(command.name, list(words), parent=context)
    return dict(ready.params)


@pytest.mark.parametrize("line", sorted({line for _, line in LINES}))
def test_a_diag_line_parses(line: str) -> None:
    words = shlex.split(line, comments=True)
    read = _parsed(words[1:])
    if words[1] in ("triage", "check", "record"):
        assert read["sources"] == ["http://prometheus:9090"]
    if words[1] == "triage":
        assert read["last"] or read["start"]


@pytest.mark.parametrize(
    "line",
    [
        "triage http://x --lats 2h",
        "triage http://x --fail-on everything",
        "asses check",
        "assets inspect http://x",
    ],
)
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|invalid|not one of"):
        _parsed(shlex.split(line))


def test_every_page_begins_with_one() -> None:
    assert {id for id, line in LINES if line.startswith("diag triage ")} == set(PAGES)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_first_command_looks_back_as_far_as_the_alert_proposes(alert: Alert) -> None:
    first = Page.of(alert.runbook).sections["First command"]
    spans = [duration_seconds(span, "--last") for span in re.findall(r"--last (\w+)", first)]
    assert max(spans) >= duration_seconds(alert.look_back, "--last")


@pytest.mark.parametrize("id", PAGES)
def test_shell_lines_are_whole(id: str) -> None:
    for line in shell_lines(Page.of(id).text):
        assert line.count("'") % 2 == 0, line
        assert line.count('"') % 2 == 0, line
        assert not line.rstrip().endswith(("|", "\\")), line
