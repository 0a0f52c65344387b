"""A runbook's page for the terminal or as Markdown: the shipped text, without what only tools read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap

from diag.renderers import RenderOptions

__all__ = ["render_page"]

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)
_COMMENT = re.compile(r"^<!--.*-->\n+", re.MULTILINE)
_ITEM = re.compile(r"( *)((?:- |\d\. )?)")


def render_page(text: str, format: str, options: RenderOptions, *, titled: bool = True) -> str:
    """``text`` (a runbook as it ships) for ``format`` console or markdown; without its title unless
    ``titled``. Prose is wrapped to the terminal; commands never are, so that they can be copied."""
    plain = _COMMENT.sub("", _FRONT_MATTER.sub("", text))
    if not titled:
        plain = re.sub(r"\A# .*\n+", "", plain)
    if format == "markdown":
        return plain
    return "\n".join(_lines(plain.rstrip().split("\n"), max(40, min(options.width, 100)), options)) + "\n"


def _lines(lines: list[str], width: int, options: RenderOptions) -> Iterator[str]:
    code = False
    for line in lines:
        fence = line.lstrip()
        if fence.startswith("```"):
            code = not code
            # A query and a shell line look alike here, and only one of them is pasted into a shell.
            yield from [f"{line[: -len(fence)]}  # PromQL"] if fence == "```promql" else []
        elif code:
            yield "  " + line
        elif line.startswith("#"):
            heading = line.lstrip("# ")
            shown = heading.upper() if line.startswith("## ") else heading
            yield from (_bold(part, options) for part in _wrapped(shown, width))
        else:
            yield from _wrapped(line, width)


def _wrapped(line: str, width: int) -> list[str]:
    found = _ITEM.match(line)
    indent = " " * (len(found[0]) if found else 0)
    if len(line) <= width:
        return [line]
    return wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _bold(text: str, options: RenderOptions) -> str:
    return f"\x1b[1m{text}\x1b[0m" if options.color else text
