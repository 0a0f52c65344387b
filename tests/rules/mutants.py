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
from tests.rules.rulefiles import CHECKOUT, Rule, alerts, recordings
from tests.rules.trimmed import checks_of, read_by, run_trimmed

__all__ = ["Outcome", "explained", "hunt", "hunted", "main"]

_FLOOR = 0.95
_WINDOWS = (":ratio_rate5m", ":ratio_rate1h", ":rate1h")
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
    """Run the tests of an alert on each of its mutants; of a recording, those of an alert that reads it.

    Raises AssertionError when they fail on the unbroken rule, or when there are none."""
    alert = rule if rule.alert else next(one for one in alerts() if rule in read_by(one))
    tests = checks_of(alert.alert)
    assert tests, f"{alert.alert} has no test"
    with tempfile.TemporaryDirectory() as name:
        folder, order = Path(name), list(range(len(tests)))

        def noticed(broken: Rule, at: int, number: int) -> bool:
            rules = [broken if one == rule else one for one in (*read_by(alert), alert)]
            return bool(run_trimmed(rules, tests[at : at + 1], folder, f"{number}-{at}"))

        def killed(number: int) -> bool:
            for at in list(order):
                if noticed(found[number].rule, at, number):
                    # What killed this one is tried first on the next.
                    order.sort(key=at.__ne__)
                    return True
            return False

        failing = [tests[at]["name"] for at in order if noticed(rule, at, len(order))]
        assert not failing, f"fail on the unbroken rule: {failing}"
        found = mutants(rule)
        with ThreadPoolExecutor(jobs) as pool:
            dead = pool.map(killed, range(len(found)))
            return [Outcome(mutant, one) for mutant, one in zip(found, dead, strict=True)]


def hunted() -> list[Rule]:
    """Every alert, and the burn rates beside them over the windows of the fast burn: the other windows are
    the same text. Recordings from diag/engines are held against a second evaluation of the same line
    elsewhere."""
    return [*alerts(), *(one for one in recordings() if one.record.endswith(_WINDOWS))]


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
    chosen = [rule for rule in hunted() if not arguments or (rule.alert or rule.record) in arguments]
    assert chosen, f"no such rule below {CHECKOUT / 'rules'}"
    outcomes: list[Outcome] = []
    for rule in chosen:
        outcomes += hunt(rule)
        print(f"{rule.alert or rule.record}: {len(outcomes)} mutants so far", file=sys.stderr)
    return _report(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
