"""What people wrote into a report, found again so that writing it anew loses nothing."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from diag.renderers.report.content import HUMAN

__all__ = ["begin", "end", "written"]

_BETWEEN = re.compile(r"<!-- human:([a-z]+) -->\n?(.*?)\n?<!-- /human:\1 -->", re.DOTALL)
_TAGS = re.compile(r"<[^>]*>")


def begin(id: str) -> str:
    """The line before a human section."""
    return f"<!-- human:{id} -->"


def end(id: str) -> str:
    """The line after it."""
    return f"<!-- /human:{id} -->"


def written(text: str) -> Mapping[str, str]:
    """Section id -> what people wrote, from an earlier report in Markdown or HTML; prompts are no text of
    theirs."""
    prompts = {one.id: one.prompt for one in HUMAN}
    found: dict[str, str] = {}
    for id, body in _BETWEEN.findall(text):
        own = body.strip()
        said = html.unescape(_TAGS.sub("", own)).strip().strip("_").strip()
        if id in prompts and said and said != prompts[id]:
            found[id] = own
    return found
