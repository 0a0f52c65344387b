"""``python -m tests.rules.generated``: write the promtool tests from the rows in ``tests/rules/cases``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tests.rules.cases import FILES
from tests.rules.cases.case import Case
from tests.rules.rulefiles import groups

__all__ = ["main", "text_of", "written_tests"]

_HERE = Path(__file__).parent
_HEAD = "# Generated from tests/rules/cases/{name}.py by `python -m tests.rules.generated`; do not edit.\n"


class _Plain(yaml.SafeDumper):
    """Without anchors: every test can be read alone."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def text_of(name: str, cases: Sequence[Case]) -> str:
    """The test file ``name``, for the rule file of that name or of what stands before its ``_days``.

    Recordings come first, since alerts read them."""
    rules, every = name.removesuffix("_days"), cases[0].every
    assert {case.every for case in cases} == {every}, "a test file has one interval of evaluation"
    own = [
        group.name for group in groups() if group.file.stem == rules and group.file.parent.name == "alerts"
    ]
    recorded = [group.name for group in groups() if group.file.parent.name == "engines"]
    content = {
        "rule_files": ["../../rules/engines/*.yml", f"../../rules/alerts/{rules}.yml"],
        "evaluation_interval": f"{every}m",
        "group_eval_order": [*recorded, *own],
        "tests": [case.test() for case in cases],
    }
    return _HEAD.format(name=rules) + yaml.dump(
        content, Dumper=_Plain, sort_keys=False, width=110, allow_unicode=True
    )


def written_tests() -> Mapping[Path, str]:
    """Every test file with what should be in it."""
    return {_HERE / f"{name}.test.yml": text_of(name, cases) for name, cases in FILES.items()}


def main() -> int:
    """Entry point; returns the exit code."""
    for path, text in written_tests().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
