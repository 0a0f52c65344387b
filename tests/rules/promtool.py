"""Run promtool on rules and on rule tests, without believing its silence.

``promtool test rules`` ends with 0 when a glob of ``rule_files`` matches nothing, when a test names an
alert that no rule has and expects nothing, and when there is no test at all. ``read_tests`` refuses all
three and counts what promtool will execute.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.rules.rulefiles import read
from tests.rules.servers import binary

__all__ = ["Silent", "Tests", "check_rules", "read_tests", "run_tests"]


class Silent(AssertionError):
    """A test file that promtool would pass without testing what it seems to test."""


@dataclass(frozen=True, slots=True)
class Tests:
    """What a test file executes: checks by alert that must fire, that must be silent, and all others.

    ``rule_files`` are the files it loads."""

    rule_files: tuple[Path, ...]
    firing: Counter[str]
    silent: Counter[str]
    expressions: int

    @property
    def executed(self) -> int:
        """How many comparisons promtool makes."""
        return self.firing.total() + self.silent.total() + self.expressions


def read_tests(file: Path) -> Tests:
    """Count what ``file`` executes. Raises ``Silent`` where promtool would look away."""
    content = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    loaded = tuple(path for pattern in content.get("rule_files") or () for path in _matches(file, pattern))
    if not loaded:
        raise Silent(f"{file.name} loads no rule file")
    known = {rule.alert for path in loaded for group in read(path) for rule in group.rules if rule.alert}
    firing: Counter[str] = Counter()
    silent: Counter[str] = Counter()
    expressions = 0
    for test in content.get("tests") or ():
        expressions += len(test.get("promql_expr_test") or ())
        for check in test.get("alert_rule_test") or ():
            name = check["alertname"]
            if name not in known:
                raise Silent(f"{file.name} tests {name}, which no rule file of it has")
            (firing if check.get("exp_alerts") else silent)[name] += 1
    found = Tests(loaded, firing, silent, expressions)
    if not found.executed:
        raise Silent(f"{file.name} executes nothing")
    return found


def run_tests(*files: Path) -> str:
    """Run the tests in ``files``. Returns what promtool has to say against them, empty when nothing."""
    done = _promtool("test", "rules", *map(str, files))
    return "" if done.returncode == 0 else done.stdout + done.stderr


def check_rules(files: Sequence[Path]) -> str:
    """Syntax and duplicates of rule files. Returns promtool's complaint, empty when there is none."""
    done = _promtool("check", "rules", *map(str, files))
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binary("promtool"), *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def _matches(file: Path, pattern: str) -> list[Path]:
    found = sorted(file.parent.glob(pattern)) if not Path(pattern).is_absolute() else [Path(pattern)]
    found = [path.resolve() for path in found if path.is_file()]
    if not found:
        raise Silent(f"{file.name} loads {pattern}, which matches no file")
    return found
