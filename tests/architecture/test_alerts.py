"""Hypothesis, alert, rule test, runbook and dashboard row: none without its counterpart, both ways.

Scenarios and runbooks of hypotheses are held together in ``test_correspondence``; that a runbook names its
alerts, in ``tests/runbooks``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from diag.assets.rules.catalogue import ALERTS, FILES
from diag.assets.rules.model import Alert, Dashboard
from diag.assets.symptoms import SYMPTOMS
from diag.assets.unalerted import WITHOUT_ALERT
from diag.hypotheses import CARDS

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = sorted((CHECKOUT / "tests" / "rules").glob("*.test.yml"))
BOARDS = {
    board["uid"]: board
    for board in (json.loads(path.read_bytes()) for path in (CHECKOUT / "dashboards").glob("*.json"))
}
FELT = [alert for file in FILES if file.path == "alerts/slo.yml" for alert in file.alerts]
BY_SIGN = [alert for alert in ALERTS if alert not in FELT]


def _panels(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield panel
        yield from _panels(panel.get("panels") or [])


def _rows(uid: str) -> set[str]:
    """The hypotheses that a board's rows name, behind the dot in their titles."""
    rows = [panel["title"] for panel in _panels(BOARDS[uid]["panels"]) if panel["type"] == "row"]
    return {name for title in rows for name in re.findall(r"[a-z_]+", title.partition("·")[2])}


def _tested() -> set[str]:
    """Alerts for which a rule test expects one that fires; read as text, since the files are long."""
    found: set[str] = set()
    for path in TESTS:
        for block in path.read_text("utf-8").split("- eval_time: "):
            name = re.search(r"^ *alertname: (\w+)$", block, re.MULTILINE)
            if name and "exp_alerts: []" not in block and "exp_alerts:" in block:
                found.add(name.group(1))
    return found


def test_each_hypothesis_has_an_alert_by_a_sign_or_a_reason_why_not_and_never_both() -> None:
    named = {name for alert in BY_SIGN for name in (*alert.causes, alert.runbook)}
    assert set(CARDS) - named == set(WITHOUT_ALERT)
    assert list(WITHOUT_ALERT) == sorted(WITHOUT_ALERT)
    assert len(WITHOUT_ALERT) <= 5


@pytest.mark.parametrize("id", sorted(set(WITHOUT_ALERT) - {"unknown"}))
def test_one_without_is_felt_through_the_alert_that_its_reason_names(id: str) -> None:
    named = re.findall(r"\bLLM[A-Z]\w+", WITHOUT_ALERT[id])
    assert named
    assert [name for name in named if id in {a.name: a.causes for a in FELT}.get(name, ())] == named


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_leads_to_a_page_and_to_known_causes(alert: Alert) -> None:
    assert alert.runbook in {*CARDS, *SYMPTOMS}
    assert (CHECKOUT / "runbooks" / f"{alert.runbook}.md").is_file()
    assert set(alert.causes) <= set(CARDS)
    assert f"llmdiag-{alert.dashboard}" in BOARDS


def test_each_symptom_has_an_alert() -> None:
    assert {alert.runbook for alert in ALERTS} >= set(SYMPTOMS)


def test_each_alert_has_a_rule_test_that_fires_it_and_each_tested_alert_is_one() -> None:
    assert _tested() == {alert.name for alert in ALERTS}


def test_each_file_of_alerts_has_its_test_and_each_test_its_file() -> None:
    files = {Path(file.path).stem for file in FILES if file.alerts}
    loaded = [re.findall(r"rules/alerts/(\w+)\.yml", path.read_text("utf-8")) for path in TESTS]
    assert all(len(names) == 1 for names in loaded)
    assert {name for names in loaded for name in names} == files


def test_alert_names_are_unique_over_all_files() -> None:
    names = [alert.name for file in FILES for alert in file.alerts]
    assert len(set(names)) == len(names)


def test_each_board_is_one_that_an_alert_may_lead_to_and_the_other_way_round() -> None:
    assert set(BOARDS) == {f"llmdiag-{name}" for name in get_args(Dashboard)}


def test_each_hypothesis_is_named_by_a_dashboard_row_and_no_row_names_another() -> None:
    named = {uid: _rows(uid) for uid in BOARDS}
    assert set().union(*named.values()) == set(CARDS)
    assert [uid for uid, ids in named.items() if not ids] == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_board_of_an_alert_has_a_row_for_one_of_its_causes(alert: Alert) -> None:
    causes = {*alert.causes, alert.runbook} & set(CARDS)
    assert not causes or causes & _rows(f"llmdiag-{alert.dashboard}")


@pytest.mark.parametrize("uid", sorted(BOARDS))
def test_a_board_links_only_to_runbooks_that_are(uid: str) -> None:
    linked = set(re.findall(r"/runbooks/([a-z_]+)", json.dumps(BOARDS[uid])))
    assert linked
    assert linked <= {*CARDS, *SYMPTOMS}


def test_an_operators_resource_holds_the_same_alerts() -> None:
    resources = sorted((CHECKOUT / "rules" / "kubernetes").glob("*.yaml"))
    named = [
        name
        for path in resources
        for name in re.findall(r"^ *- alert: (\w+)$", path.read_text("utf-8"), re.M)
    ]
    assert sorted(named) == sorted(alert.name for alert in ALERTS)


def test_alertmanager_s_example_inhibits_only_alerts_that_are() -> None:
    text = (CHECKOUT / "rules" / "alertmanager.yaml").read_text("utf-8")
    assert yaml.safe_load(text)["inhibit_rules"]
    named = set(re.findall(r"\b(?:LLM|GPU|KV|IB)[A-Z]\w+", text))
    assert named
    assert named <= {alert.name for alert in ALERTS}
