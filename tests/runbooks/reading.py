"""Runbooks taken apart: front matter, sections, steps, commands, queries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from diag.assets.runbooks import BEGIN, END, body

__all__ = ["FOLDER", "PAGES", "Page", "expressions", "shell_lines"]

FOLDER = Path(__file__).resolve().parents[2] / "runbooks"
PAGES = tuple(sorted(path.stem for path in FOLDER.glob("*.md")))

_BLOCK = re.compile(r"^( *)```(promql|sh)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    """One runbook: ``text`` as it stands, ``front`` its YAML, ``sections`` by heading in their order."""

    id: str
    text: str
    front: dict[str, Any]
    sections: dict[str, str]

    @staticmethod
    @cache
    def of(id: str) -> Page:
        """The runbook of ``id``."""
        text = (FOLDER / f"{id}.md").read_text(encoding="utf-8")
        front = yaml.safe_load(text.split("---\n")[1])
        parts = re.split(r"^## (.+)\n", body(text), flags=re.MULTILINE)
        return Page(id, text, front, dict(zip(parts[1::2], parts[2::2], strict=True)))

    @property
    def by_hand(self) -> str:
        """What a person wrote, commands included: all but front matter and generated block."""
        return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", "", body(self.text), flags=re.DOTALL)

    @property
    def prose(self) -> str:
        """What a person wrote and another one reads: no title, headings, commands or sources."""
        text = _BLOCK.sub("", self.by_hand.partition("## Sources")[0])
        return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)

    @property
    def steps(self) -> list[str]:
        """The numbered steps of "By hand"."""
        return [one.strip() for one in re.split(r"^\d\. ", self.sections["By hand"], flags=re.MULTILINE)[1:]]


def expressions(text: str) -> list[str]:
    """The PromQL expressions of all blocks in ``text``; a line that is indented goes on."""
    found: list[str] = []
    for indent, kind, lines in _BLOCK.findall(text):
        for line in lines.splitlines() if kind == "promql" else ():
            bare = line[len(indent) :]
            if bare.startswith(" "):
                found[-1] += f" {bare.strip()}"
            else:
                found.append(bare)
    return found


def shell_lines(text: str) -> list[str]:
    """The commands of all shell blocks in ``text``, continuations joined."""
    found: list[str] = []
    for indent, kind, lines in _BLOCK.findall(text):
        joined = "\n".join(line[len(indent) :] for line in lines.splitlines()).replace("\\\n", " ")
        found += joined.splitlines() if kind == "sh" else []
    return found
