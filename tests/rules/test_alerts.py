"""The promtool tests of every alert, and the guards without which they could pass for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.generated import written_tests
from tests.rules.promtool import read_tests
from tests.rules.rulefiles import RULES, alerts, seconds
from tests.rules.trimmed import checks_of, read_by, run_trimmed

_ALERTS = {rule.alert: rule for rule in alerts()}
_ALWAYS = "LLMWatchdog"


@pytest.mark.parametrize("alert", _ALERTS)
def test_alert(alert: str, tmp_path: Path) -> None:
    rule = _ALERTS[alert]
    assert run_trimmed([*read_by(rule), rule], checks_of(alert), tmp_path) == ""


@pytest.mark.parametrize("alert", _ALERTS)
def test_every_alert_fires_is_silent_before_and_resolves(alert: str) -> None:
    if alert == _ALWAYS:
        assert [_fires(check) for test in checks_of(alert) for check in test["alert_rule_test"]] == [
            True,
            True,
        ]
        return
    courses = [
        "".join("F" if _fires(check) else "." for check in _in_time(test)) for test in checks_of(alert)
    ]
    assert any(course.startswith(".") and "F" in course for course in courses), courses
    assert any("F." in course for course in courses), courses


def test_every_firing_check_names_all_labels_and_annotations() -> None:
    for alert, rule in _ALERTS.items():
        for one in (
            one for test in checks_of(alert) for check in test["alert_rule_test"] for one in _expected(check)
        ):
            assert set(one["exp_annotations"]) == set(rule.annotations)
            assert set(rule.labels) <= set(one["exp_labels"])
            said = " ".join(one["exp_annotations"].values())
            assert "{{" not in said
            assert "<no value>" not in said


def test_a_broken_rule_fails_its_tests(tmp_path: Path) -> None:
    rule = _ALERTS["LLMWatchdog"]
    loud = replace(rule, labels={**rule.labels, "severity": "critical"})
    assert "LLMWatchdog" in run_trimmed([loud], checks_of("LLMWatchdog"), tmp_path)


def test_files_are_generated_and_none_is_left_over() -> None:
    wanted = written_tests()
    assert {path: path.read_text(encoding="utf-8") for path in wanted} == wanted
    assert set(Path(__file__).parent.glob("*.test.yml")) == set(wanted)


def test_every_rule_file_is_loaded_and_every_file_executes_something() -> None:
    found = {path: read_tests(path) for path in written_tests()}
    loaded = {path for one in found.values() for path in one.rule_files}
    assert loaded == {*RULES.glob("engines/*.yml"), *RULES.glob("alerts/*.yml")}
    assert all(one.executed >= 10 for one in found.values())
    fired = {alert for one in found.values() for alert in one.firing}
    assert fired == set(_ALERTS)


def test_the_tests_cover_engines_old_and_new() -> None:
    """An alert on engines is tested with V1, V0, the vllm_ spelling and SGLang, where its input is theirs."""
    series = {
        alert: " ".join(one["series"] for test in checks_of(alert) for one in test["input_series"])
        for alert in _ALERTS
    }
    for alert in ("LLMQueueGrowing", "LLMKVCacheSaturated", "LLMTTFTBudgetBurnFast", "LLMInterTokenSlow"):
        for prefix in ("vllm:", "vllm_", "sglang:"):
            assert prefix in series[alert], (alert, prefix)
    for alert in ("LLMKVCacheSaturated", "LLMPrefixCacheHitCollapse", "LLMInterTokenSlow"):
        assert "gpu_" in series[alert] or "time_per_output_token" in series[alert], alert


def _in_time(test: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    checks: list[Mapping[str, Any]] = test["alert_rule_test"]
    return sorted(checks, key=lambda check: seconds(check["eval_time"]))


def _expected(check: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return check.get("exp_alerts") or []


def _fires(check: Mapping[str, Any]) -> bool:
    return bool(_expected(check))
