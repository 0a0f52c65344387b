"""Test labels against conditions, the way PromQL does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from diag.errors import UsageError
from diag.signals.algebra import Matcher

__all__ = ["accepts"]


def accepts(labels: Mapping[str, str], conditions: Iterable[Matcher]) -> bool:
    """Whether ``labels`` meet all ``conditions``; an absent label counts as ''.

    ``UsageError`` for a regular expression that doesn't compile.
    """
    return all(_holds(one, labels.get(one.label, "")) for one in conditions)


def _holds(condition: Matcher, value: str) -> bool:
    match condition.op:
        case "=":
            return value == condition.value
        case "!=":
            return value != condition.value
        case "=~":
            return _pattern(condition.value).fullmatch(value) is not None
        case "!~":
            return _pattern(condition.value).fullmatch(value) is None


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{text!r} is no regular expression ({error})", hint="correct the pattern") from None
