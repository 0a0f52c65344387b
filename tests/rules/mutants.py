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

from tests.rules.mutation import Mutant, mutants
from tests.rules.rulefiles import CHECKOUT, Rule, alerts
from tests.rules.trimmed import checks_of, read_by, run_trimmed

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
        tests, read = checks_of(rule.alert), read_by(rule)
        assert tests, f"{rule.alert} has no test"
        assert not run_trimmed([*read, rule], tests, folder), (
            f"the tests of {rule.alert} fail on the rule itself"
        )
        found = [(mutant, [*read, mutant.rule]) for mutant in mutants(rule)]

        def killed(number: int) -> bool:
            return bool(run_trimmed(found[number][1], tests, folder, f"{number}"))

        with ThreadPoolExecutor(jobs) as pool:
            dead = pool.map(killed, range(len(found)))
            return [Outcome(mutant, one) for (mutant, _), one in zip(found, dead, strict=True)]


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
