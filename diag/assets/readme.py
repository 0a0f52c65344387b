"""Fills the README's example with the output of a real run, so that it cannot drift."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["BEGIN", "END", "example_run", "filled"]

BEGIN = "<!-- generated from `diag demo` by `make generate`: begin -->"
END = "<!-- generated: end -->"


def example_run(root: Path) -> str:
    """What ``diag demo`` of the checkout at ``root`` writes to a plain 100-column terminal."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("DIAG_")},
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONPATH": str(root),
        "PYTHONIOENCODING": "utf-8",
    }
    done = subprocess.run(
        [sys.executable, "-m", "diag", "demo"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def filled(readme: str, run: str) -> str:
    """``readme`` with the marked block replaced by ``run``; raise ``ValueError`` if it has no such block."""
    block = f"{BEGIN}\n```console\n$ diag demo\n{run}\n```\n{END}"
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if pattern.search(readme) is None:
        raise ValueError("README.md has no block marked for the example run")
    return pattern.sub(lambda _: block, readme, count=1)
