"""The postmortem of every recording, word for word: a change of triage shows what readers would read.

Left out are the sections that list every hypothesis, the appendix, and what people write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from diag.api.reports import report_for
from diag.model import SourceRef
from diag.renderers.report import HUMAN
from diag.renderers.report.postmortem import render

from .conftest import Judged
from .test_recordings import ALL

_LISTS = {"Ruled out", "Could not be checked", "Appendix: data", "Appendix: queries"}
_LEFT_OUT = _LISTS | {one.title for one in HUMAN}


def _told(text: str) -> Iterator[str]:
    """The sections that stay, line by line."""
    kept = True
    for line in text.splitlines():
        if line.startswith("## "):
            kept = line.removeprefix("## ") not in _LEFT_OUT
        if kept:
            yield line


@pytest.mark.parametrize("name", ALL)
def test_the_postmortem_of_a_recording(
    name: str, judged: Callable[[str], Judged], golden: Callable[[str, str], None]
) -> None:
    verdict = replace(judged(name).whole, source=(SourceRef("recording", name),))
    golden(f"{name}.md", "\n".join(_told(render(report_for(verdict)))).strip() + "\n")


def test_there_is_a_file_for_each_recording_and_no_other() -> None:
    assert sorted(path.stem for path in (Path(__file__).parent / "golden").glob("*.md")) == ALL
