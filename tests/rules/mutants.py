"""``python -m tests.rules.mutants [ALERT…]``: break every rule, run its tests, print killed and survived.

Slow, so it is no part of ``make test``. Exit 1 when fewer than 95 % are killed, or one survives that
``survivors.toml`` does not explain.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.rules.mutation import Mutant, mutants
from tests.rules.promtool import run_tests
from tests.rules.replay import metric_names
from tests.rules.rulefiles import CHECKOUT, Rule, alerts, recordings, written

__all__ = ["Outcome", "explained", "hunt", "main"]

_FLOOR = 0.95
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a mutant's tests noticed it."""

    mutant: Mutant
    killed: bool

    @property
    def alert(self) -> str:
        """The alert it is about: its own name, or the recording's."""
        return self.mutant.rule.alert or self.mutant.rule.record


def explained() -> dict[str, dict[str, str]]:
    """Reason by alert and change of every mutant that may survive."""
    found: dict[str, dict[str, str]] = tomllib.loads((_HERE / "survivors.toml").read_text(encoding="utf-8"))
    return found


def hunt(rule: Rule, *, jobs: int = 2) -> list[Outcome]:
    """Run the tests of an alert on each of its mutants.

    Raises AssertionError when they fail on the unbroken rule, or when there are none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tests = _tests_of(rule.alert)
        assert tests, f"{rule.alert} has no test"
        assert not _noticed(folder, 0, rule, tests), f"the tests of {rule.alert} fail on the rule itself"
        found = mutants(rule)
        with ThreadPoolExecutor(jobs) as pool:
            killed = pool.map(lambda at: _noticed(folder, at[0], at[1].rule, tests), enumerate(found, 1))
            return [Outcome(mutant, dead) for mutant, dead in zip(found, killed, strict=True)]


def _noticed(folder: Path, number: int, rule: Rule, tests: Sequence[dict[str, Any]]) -> bool:
    rules, test = folder / f"{number}.yml", folder / f"{number}.test.yml"
    rules.write_text(written([*_read_by(rule), rule], interval="1m"))
    test.write_text(
        yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": list(tests)})
    )
    return bool(run_tests(test))


def _read_by(rule: Rule) -> list[Rule]:
    names = metric_names(rule.expr)
    return [one for one in recordings() if one.record in names]


def _tests_of(alert: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in sorted(_HERE.glob("*.test.yml")):
        for test in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]:
            checks = [one for one in test.get("alert_rule_test") or () if one["alertname"] == alert]
            if checks:
                found.append({**test, "alert_rule_test": checks, "promql_expr_test": []})
    return found


def _report(outcomes: Sequence[Outcome]) -> int:
    reasons = explained()
    killed = sum(one.killed for one in outcomes)
    unexplained = 0
    for one in outcomes:
        if not one.killed:
            reason = reasons.get(one.alert, {}).get(one.mutant.change)
            unexplained += reason is None
            print(f"survived: {one.alert}: {one.mutant.change}" + (f"  ({reason})" if reason else ""))
    ratio = killed / len(outcomes)
    print(f"{len(outcomes)} mutants, {killed} killed ({ratio:.1%}), {len(outcomes) - killed} survived")
    print(f"{unexplained} of the survivors without a reason in tests/rules/survivors.toml")
    return int(ratio < _FLOOR or unexplained > 0)


def main(arguments: Sequence[str]) -> int:
    """Entry point; returns the exit code."""
    chosen = [rule for rule in alerts() if not arguments or rule.alert in arguments]
    assert chosen, f"no such alert below {CHECKOUT / 'rules'}"
    outcomes = [one for rule in chosen for one in hunt(rule)]
    return _report(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
