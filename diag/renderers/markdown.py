"""The same page for a ticket or a chat: GitHub-flavoured, readable as plain text too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from diag.model import Stance, Verdict
from diag.renderers import RenderOptions
from diag.renderers.page import Cause, Line, Page, page

__all__ = ["escaped", "render"]

_SIGNS = {Stance.FOR.value: "for", Stance.AGAINST.value: "**against**"}
# Underscores inside a word are literal in Markdown; escaping them would only spoil metric names.
_SPECIAL = re.compile(r"([\\`*\[\]<>|~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")


def render(verdict: Verdict, options: RenderOptions) -> str:
    """``verdict`` as Markdown, ending in a newline."""
    return "\n".join(_lines(page(verdict, options.top))).strip() + "\n"


def _lines(content: Page) -> Iterator[str]:
    yield f"# {escaped(content.headline)}"
    yield ""
    yield escaped("; ".join(content.context))
    yield from _section("Symptoms", _pairs(content.symptoms))
    if content.leading:
        title = "Unexplained" if content.leading.id == "unknown" else "Leading cause"
        yield from _section(f"{title}: `{content.leading.id}`", _cause(content.leading))
    if content.others:
        title = "Risks, no harm to users yet" if content.healthy else "Also stands"
        yield from _section(title, (line for cause in content.others for line in _brief(cause)))
    yield from _section("Not excluded", [escaped(content.left_out)] if content.left_out else [])
    yield from _section("Unexplained movers", _pairs(content.leads))
    yield from _section("Ruled out", _pairs(content.ruled_out))
    yield from _section("Could not be checked", _pairs(content.unchecked))
    yield from _section("Notes", (f"- {escaped(note)}" for note in content.notes))
    yield from _section(
        "Next measurement", [escaped(content.next_measurement)] if content.next_measurement else []
    )


def _section(title: str, body: Iterable[str]) -> Iterator[str]:
    lines = list(body)
    if lines:
        yield from ("", f"## {title}", "")
        yield from lines


def _cause(cause: Cause) -> Iterator[str]:
    yield f"{escaped(cause.title)} ({cause.state}; {', '.join(cause.facts)})"
    if cause.hits:
        yield ""
        yield f"Hits {escaped('; '.join(cause.hits))}"
    if cause.chain:
        yield from ("", "| time (UTC) | after onset | what moved |", "|---|---|---|")
        for link in cause.chain:
            yield f"| {link.time} | {link.after} | {escaped(link.text)} |"
    if cause.evidence:
        yield ""
        yield from _evidence(cause.evidence)
    for how_to_get in cause.missing:
        yield f"- unseen: {escaped(how_to_get)}"
    if cause.actions:
        yield from _section("Do first", _actions(cause.actions))
    if cause.runbook:
        yield ""
        yield f"Runbook: `{cause.runbook}`"


def _brief(cause: Cause) -> Iterator[str]:
    yield f"- `{cause.id}` {escaped(cause.title)} ({cause.state}; {', '.join(cause.facts)})"
    for line in _evidence(cause.evidence[:2]):
        yield f"  {line}"
    if cause.actions:
        yield f"  - do: {escaped(cause.actions[0].text)}"


def _evidence(lines: Sequence[Line]) -> Iterator[str]:
    return (f"- {_SIGNS[line.about]}: {escaped(line.text)}" for line in lines)


def _actions(lines: Sequence[Line]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        prefix = "" if line.about == "safe" else f"{line.about}: "
        yield f"{number}. {prefix}{escaped(line.text)}"


def _pairs(lines: Sequence[Line]) -> Iterator[str]:
    return (f"- **{escaped(line.about)}**: {escaped(line.text)}" for line in lines)


def escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
