"""The rules over whole incidents in a real Prometheus: what fires, what must not, what the page says."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from tests.rules.incidents import EVERY, QUICK
from tests.rules.matrix import PAGE, compared, expected, fires_text, replayed
from tests.rules.mutants import explained
from tests.rules.recording_answers import generated
from tests.rules.replay import Fired
from tests.rules.rulefiles import alerts

_NAMES = {rule.alert for rule in alerts()}


@pytest.fixture(scope="module")
def found() -> Mapping[str, list[Fired]]:
    """What fired in the quick incidents."""
    return replayed(QUICK)


@pytest.mark.server
def test_what_must_fire_fires_and_nothing_else(found: Mapping[str, list[Fired]]) -> None:
    assert compared(found) == []


@pytest.mark.server
def test_the_page_shows_what_was_replayed(found: Mapping[str, list[Fired]]) -> None:
    """Which alerts, not at which minute: that may move by one with the numbers' last digit."""
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    for title, fired in found.items():
        assert _alerts(rows[title]) == _alerts(fires_text(title, fired)), title


def test_the_page_lists_every_alert_and_incident() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in _NAMES if f"| `{name}` | " not in text] == []
    assert [one.title for one in EVERY if f"\n| {one.title} | " not in text] == []
    assert "Differences from what was expected: none." in text


def test_what_is_expected_exists() -> None:
    wanted = expected()
    assert set(wanted) <= {one.title for one in EVERY}
    assert {name for one in wanted.values() for name in one.must | one.may} <= _NAMES
    assert set(explained()) <= _NAMES | {one.title for one in generated()}


def test_healthy_incidents_expect_nothing() -> None:
    calm = {one.title for one in EVERY if one.name.startswith("healthy")}
    assert len(calm) >= 9
    assert calm & set(expected()) == set()


def _alerts(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))
