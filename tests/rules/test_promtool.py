"""promtool's silent passes, each shown to be silent and shown to be refused here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.promtool import Silent, read_tests, run_tests

_RULES = """
groups:
  - name: g
    rules:
      - alert: Here
        expr: up == 0
"""
_TEST = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series: [{{series: "up{{job='a'}}", values: "1 1 0x10"}}]
    alert_rule_test: [{{eval_time: 5m, alertname: {name}, exp_alerts: {wanted}}}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one rule file."""
    (tmp_path / "rules.yml").write_text(_RULES)
    return tmp_path


def _written(folder: Path, text: str) -> Path:
    file = folder / "one.test.yml"
    file.write_text(text)
    return file


def test_a_true_expectation_passes_and_is_counted(folder: Path) -> None:
    file = _written(folder, _TEST.format(rules="rules.yml", name="Here", wanted="[{exp_labels: {job: a}}]"))
    assert run_tests(file) == ""
    found = read_tests(file)
    assert (found.firing["Here"], found.silent["Here"], found.executed) == (1, 0, 1)
    assert found.rule_files == (folder / "rules.yml",)


@pytest.mark.parametrize("wanted", ["[]", "[{exp_labels: {job: b}}]"])
def test_a_false_expectation_is_named(folder: Path, wanted: str) -> None:
    file = _written(folder, _TEST.format(rules="rules.yml", name="Here", wanted=wanted))
    assert "Here" in run_tests(file)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (_TEST.format(rules="nothing*.yml", name="Here", wanted="[]"), "matches no file"),
        (_TEST.format(rules="rules.yml", name="Elsewhere", wanted="[]"), "which no rule file of it has"),
        ("rule_files: [rules.yml]\ntests: []\n", "executes nothing"),
    ],
)
def test_promtool_passes_what_we_refuse(folder: Path, text: str, why: str) -> None:
    file = _written(folder, text)
    assert run_tests(file) == ""
    with pytest.raises(Silent, match=why):
        read_tests(file)
