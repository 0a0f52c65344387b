"""The part of YAML that a web configuration file uses: nested mappings of scalars, and lists of scalars.

A whole YAML library is not worth its start-up time and its surface for a dozen keys. What is beyond
this part (anchors, block scalars, flow mappings, tags) is refused with its line, never guessed at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Value", "YamlError", "parse"]

Value = str | bool | int | None | list["Value"] | dict[str, "Value"]

_KEY = re.compile(r"""(?P<key>"[^"]*"|'[^']*'|[^\s#'"\[\]{},&*!|>%@`-][^#:]*?)\s*:(?:\s+(?P<rest>.*))?""")
_NUMBER = re.compile(r"[-+]?[0-9]+")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}


class YamlError(ValueError):
    """The text is not YAML of the kind read here; says the line."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    indent: int
    text: str

    def wrong(self, what: str) -> YamlError:
        return YamlError(f"line {self.number}: {what}")


def parse(text: str) -> dict[str, Value]:
    """The mapping in ``text``; empty text is an empty mapping. Raise ``YamlError`` for what is not read."""
    lines = list(_lines(text))
    if not lines:
        return {}
    value, rest = _block(lines, lines[0].indent)
    if rest:
        raise rest[0].wrong("is indented less than what it follows")
    if not isinstance(value, dict):
        raise lines[0].wrong("a mapping is expected here")
    return value


def _lines(text: str) -> Iterator[_Line]:
    for number, raw in enumerate(text.splitlines(), 1):
        bare = _without_comment(raw).rstrip()
        if not bare.strip() or (number == 1 and bare == "---"):
            continue
        indent = len(bare) - len(bare.lstrip(" "))
        if bare[indent] == "\t":
            raise YamlError(f"line {number}: tabs cannot indent")
        yield _Line(number, indent, bare[indent:])


def _without_comment(line: str) -> str:
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (place == 0 or line[place - 1] in " :-[,"):
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1] in " \t"):
            return line[:place]
    return line


def _block(lines: list[_Line], indent: int) -> tuple[Value, list[_Line]]:
    first = lines[0]
    if first.text == "-" or first.text.startswith("- "):
        return _list(lines, indent)
    return _mapping(lines, indent)


def _list(lines: list[_Line], indent: int) -> tuple[Value, list[_Line]]:
    result: list[Value] = []
    while lines and lines[0].indent == indent and lines[0].text.startswith("-"):
        line = lines[0]
        if not line.text.startswith("- "):
            raise line.wrong("a list item is written `- value`")
        result.append(_scalar(line, line.text[2:].strip()))
        lines = lines[1:]
    return result, lines


def _mapping(lines: list[_Line], indent: int) -> tuple[Value, list[_Line]]:
    result: dict[str, Value] = {}
    while lines and lines[0].indent == indent and not lines[0].text.startswith("- "):
        line = lines[0]
        matched = _KEY.fullmatch(line.text)
        if matched is None:
            raise line.wrong("`key: value` is expected here")
        key = str(_scalar(line, matched["key"])) if matched["key"][0] in "\"'" else matched["key"]
        if key in result:
            raise line.wrong(f"{key!r} stands twice")
        rest, lines = (matched["rest"] or "").strip(), lines[1:]
        if rest:
            result[key] = _scalar(line, rest)
        elif lines and _belongs(lines[0], indent):
            result[key], lines = _block(lines, lines[0].indent)
        else:
            result[key] = None
    if lines and lines[0].indent > indent:
        raise lines[0].wrong("is indented more than what it follows")
    return result, lines


def _belongs(line: _Line, indent: int) -> bool:
    """A list may stand at its key's own indentation."""
    return line.indent > indent or (line.indent == indent and line.text.startswith("- "))


def _scalar(line: _Line, text: str) -> Value:
    if text in ("{}", "[]"):
        return {} if text == "{}" else []
    if text[0] == "[" and text[-1] == "]":
        return [_scalar(line, part.strip()) for part in text[1:-1].split(",")]
    if text[0] == "'":
        if len(text) < 2 or text[-1] != "'" or "'" in text[1:-1].replace("''", ""):
            raise line.wrong("the quote does not end")
        return text[1:-1].replace("''", "'")
    if text[0] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            raise line.wrong("the quoted text cannot be read") from None
    if text[0] in "&*!|>%@`{[" or ": " in text:
        raise line.wrong(f"this kind of YAML is not read here: {text[:20]!r}")
    if text in _WORDS:
        return _WORDS[text]
    return int(text) if _NUMBER.fullmatch(text) else text
