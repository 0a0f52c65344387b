"""``python -m tests.rules.mutants [RULE…]``: break every rule, run its tests, print killed and survived.

Slow, so it is no part of ``make test``. Exit 1 when fewer than 95 % of the alerts' mutants or of the
recordings' are killed, or one survives that ``survivors.toml`` does not explain. ``recordings`` chooses
all that are generated from diag/engines, ``alerts`` all others.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.rules.mutation import Outcome, mutants, title_of
from tests.rules.recording_answers import generated
from tests.rules.recording_mutants import hunt_recordings
from tests.rules.rulefiles import CHECKOUT, Rule, alerts, recordings
from tests.rules.trimmed import checks_of, read_by, run_trimmed

__all__ = ["explained", "hunt", "hunted", "main"]

_FLOOR = 0.95
_WINDOWS = (":ratio_rate5m", ":ratio_rate1h", ":rate1h")
_HERE = Path(__file__).parent


def explained() -> dict[str, dict[str, str]]:
    """Reason by rule (see ``mutation.title_of``) and change of every mutant that may survive."""
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
    """What promtool's tests are run on: every alert, and the burn rates beside them over the windows of the
    fast burn, as the other windows are the same text. The recordings from diag/engines are broken in
    ``recording_mutants`` and asked of a real Prometheus."""
    return [*alerts(), *(one for one in recordings() if one.record.endswith(_WINDOWS))]


def _report(kind: str, outcomes: Sequence[Outcome]) -> bool:
    """Print what survived and how many did; whether they are few enough and all explained."""
    reasons = explained()
    killed = sum(one.killed for one in outcomes)
    unexplained = 0
    for one in outcomes:
        if not one.killed:
            reason = reasons.get(one.title, {}).get(one.mutant.change)
            unexplained += reason is None
            print(f"survived: {one.title}: {one.mutant.change}" + (f"  ({reason})" if reason else ""))
    ratio = killed / len(outcomes)
    print(
        f"{kind}: {len(outcomes)} mutants, {killed} killed ({ratio:.1%}), {len(outcomes) - killed} survived"
    )
    print(f"{unexplained} of the survivors without a reason in tests/rules/survivors.toml")
    return ratio >= _FLOOR and not unexplained


def main(arguments: Sequence[str]) -> int:
    """Entry point; returns the exit code."""
    wanted = frozenset(arguments)
    chosen = [rule for rule in hunted() if not wanted or wanted & {"alerts", title_of(rule)}]
    made = [one for one in generated() if not wanted or wanted & {"recordings", one.title, one.rule.record}]
    assert chosen or made, f"no such rule below {CHECKOUT / 'rules'}"
    good = True
    if made:
        good &= _report("recordings", hunt_recordings(made))
    outcomes: list[Outcome] = []
    for rule in chosen:
        outcomes += hunt(rule)
        print(f"{title_of(rule)}: {len(outcomes)} mutants so far", file=sys.stderr)
    if outcomes:
        good &= _report("alerts", outcomes)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
