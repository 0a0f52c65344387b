"""``diag simulate``: make an incident to practise on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diag.cli import answering
from diag.cli.config import read_defaults
from diag.cli.options import Answer, Debug, with_options
from diag.errors import UsageError

if TYPE_CHECKING:
    from diag.simulate.scenarios.draw import Scenario

__all__ = ["command"]


@with_options
def simulate(
    answer: Answer,
    scenario: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO]", help="one of --list", show_default=False)
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="list the scenarios")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="each seed is another incident")] = 0,
    severity: Annotated[
        float | None,
        typer.Option("--severity", metavar="0-1", help="barely visible to severe (default: drawn)"),
    ] = None,
    family: Annotated[
        str, typer.Option("--family", help="how hard: develop, calibrate, test or shifted")
    ] = "develop",
    debug: Debug = False,  # noqa: ARG001  read by diag.cli.main
) -> int:
    """Simulate an incident and write it as a bundle (-o FILE): same seed, same bytes."""
    from diag.api import accuracy as api

    if list_all:
        format = answering.chosen_format(answer, read_defaults(Path.cwd(), os.environ))
        answering.deliver(_listed(api.scenarios(), format), answer)
        return 0
    if scenario is None:
        raise UsageError("no scenario given", hint="`diag simulate --list` shows them")
    if answer.output is None:
        raise UsageError(
            "simulate needs -o FILE", hint=f"such as -o {scenario}.zip, or a .tar.gz or a folder"
        )
    with answering.ProgressLine() as progress:
        made = api.simulate(
            scenario, answer.output, seed=seed, family=family, severity=severity, progress=progress
        )
    felt = made.felt
    told = (
        f"{felt.who}: {felt.what} {felt.before:.3g} -> {felt.during:.3g}" if felt.felt else "nobody feels it"
    )
    answering.say(f"wrote {answer.output} (seed {seed}; {told})")
    return 0


command = simulate


def _listed(scenarios: Sequence[Scenario], format: str) -> str:
    if format == "json":
        import msgspec

        rows = [
            {"id": one.id, "kind": str(one.kind), "hypothesis": one.hypothesis, "text": one.text}
            for one in scenarios
        ]
        return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n"
    if format == "markdown":
        return "".join(f"- `{one.id}` ({one.kind}): {one.text}\n" for one in scenarios)
    width = max((len(one.id) for one in scenarios), default=0)
    return "".join(f"{one.id:<{width}}  {one.kind:<8}  {one.text}\n" for one in scenarios)
