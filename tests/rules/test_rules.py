"""What holds for every shipped rule before any number is looked at."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.rules.lint import complaints, known_labels
from tests.rules.promtool import check_rules
from tests.rules.rulefiles import RULES, Rule, alerts, groups, recordings


def test_promtool_accepts_every_file() -> None:
    files = sorted(RULES.glob("engines/*.yml")) + sorted(RULES.glob("alerts/*.yml"))
    assert check_rules(files) == ""


def test_no_rule_has_a_complaint() -> None:
    known = known_labels(recordings())
    assert [text for rule in (*recordings(), *alerts()) for text in complaints(rule, known)] == []


def test_names_of_groups_and_alerts_are_unique() -> None:
    names = Counter(group.name for group in groups())
    alert_names = Counter(rule.alert for rule in alerts())
    assert [name for name, times in (names + alert_names).items() if times > 1] == []


def _rule(expr: str, **changes: object) -> Rule:
    links = ("runbook_url", "dashboard_url", "triage_url", "triage_command")
    annotations = {"summary": "It is.", "description": "It is.", **dict.fromkeys(links, "x")}
    annotations |= {k: str(v) for k, v in changes.items() if k in annotations}
    labels = {"severity": str(changes.get("severity", "warning")), "component": "engine", "service": "llm"}
    hold = 300.0 if "hold" not in changes else float(str(changes["hold"]))
    name = str(changes.get("alert", "LLMThing"))
    record = str(changes.get("record", ""))
    return Rule(Path("x.yml"), "g", expr, "" if record else name, record, hold, 0.0, labels, annotations)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (_rule("vllm:num_preemptions_total > 3"), "nothing takes its rate"),
        (_rule("rate(vllm:num_requests_waiting[5m]) > 3"), "is no counter"),
        (_rule("vllm:num_requests_waiting"), "nothing compares"),
        (_rule("vllm:num_requests_waiting or up > 3"), "nothing compares in `vllm:num_requests_waiting`"),
        (_rule("up > bool 3"), "nothing compares"),
        (_rule("llm:nothing > 3"), "which nothing records"),
        (_rule("absent(up)", hold=60), "less than five minutes"),
        (_rule("up == 0", hold=45), "no multiple"),
        (_rule('rate(x_bucket{le="5"}[5m]) > 0'), "has no dot"),
        (_rule("rate(x_total[1m]) > 0"), "fewer than two scrapes"),
        (_rule("sum by (job) (up) / sum by (instance) (up) > 0"), "which one side lacks"),
        (_rule("sum by (job) (up) > 0", description="{{ $labels.instance }} is."), "the expression drops"),
        (_rule("up > 0", description="{{ $externalLabels.town }} is."), "external label town"),
        (_rule("up > 0", summary="It is"), "static sentence"),
        (_rule("up > 0", summary="{{ $value }} is."), "static sentence"),
        (_rule("up > 0", severity="page"), "severity"),
        (_rule("up > 0", alert="Queue_growing"), "CamelCase"),
        (_rule("llm:a + up", record="llm:b"), "another recording"),
    ],
)
def test_the_lint_sees(rule: Rule, why: str) -> None:
    found = complaints(rule, {"llm:a": None})
    assert any(why in text for text in found), f"only {found}"


@pytest.mark.parametrize(
    "expr",
    [
        "rate(vllm:num_preemptions_total[5m]) > 0",
        "(up > 0) or (scrape_duration_seconds > 3)",
        "absent(up)",
        "x_total unless x_total offset 10m",
        "sum by (job) (up) / on (job) group_left () sum by (job, instance) (up) > 0",
        "vector(1)",
    ],
)
def test_the_lint_is_content_with(expr: str) -> None:
    assert complaints(_rule(expr), {}) == []


def test_burn_rates_differ_by_their_window_alone() -> None:
    """So that mutants of two windows stand for all."""
    by_family: dict[str, set[str]] = {}
    for rule in recordings():
        family, _, window = rule.record.partition("rate")
        if rule.record.startswith("slo:"):
            text = "".join(rule.expr.split()).replace(f"[{window}]", "[…]")
            by_family.setdefault(family, set()).add(text)
    assert {family: len(texts) for family, texts in by_family.items()} == dict.fromkeys(by_family, 1)
    assert len(by_family) == 3
