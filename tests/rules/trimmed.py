"""One alert with the recordings it reads and its own tests: what promtool needs minutes for becomes seconds.

The committed test files load whole rule files, as a reader would; promtool then evaluates some two hundred
recordings a minute of every test. Here each alert is taken out of the shipped files with what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.rules.promtool import run_tests
from tests.rules.replay import metric_names
from tests.rules.rulefiles import Rule, recordings, written

__all__ = ["checks_of", "read_by", "run_trimmed"]

_HERE = Path(__file__).parent


def read_by(rule: Rule) -> list[Rule]:
    """The recordings that ``rule`` reads."""
    names = metric_names(rule.expr)
    return [one for one in recordings() if one.record in names]


def checks_of(alert: str) -> list[dict[str, Any]]:
    """The tests of an alert in the committed test files."""
    return [test for test in _committed() if test["alert_rule_test"][0]["alertname"] == alert]


def run_trimmed(
    rules: Sequence[Rule], tests: Sequence[dict[str, Any]], folder: Path, name: str = "one"
) -> str:
    """Run ``tests`` on ``rules`` alone. Returns promtool's complaint, empty when there is none."""
    rule_file, test_file = folder / f"{name}.yml", folder / f"{name}.test.yml"
    rule_file.write_text(written(rules, interval="1m"))
    (every,) = {test["interval"] for test in tests}
    content = {"rule_files": [rule_file.name], "evaluation_interval": every, "tests": list(tests)}
    test_file.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper))
    return run_tests(test_file)


@cache
def _committed() -> tuple[dict[str, Any], ...]:
    return tuple(
        test
        for file in sorted(_HERE.glob("*.test.yml"))
        for test in yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["tests"]
    )
