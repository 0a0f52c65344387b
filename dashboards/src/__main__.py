"""Write ``dashboards/*.json``, or with ``--check`` name those that are stale and exit 1."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dashboards.src.boards import BOARDS
from dashboards.src.grafana import dashboard_json

__all__ = ["main", "stale", "texts"]

FOLDER = Path(__file__).resolve().parents[1]


def texts() -> dict[str, str]:
    """File name -> text of every board."""
    return {
        f"{board.uid}.json": json.dumps(dashboard_json(board), indent=1, sort_keys=True, ensure_ascii=False)
        + "\n"
        for board in BOARDS
    }


def stale(folder: Path = FOLDER, *, write: bool = False) -> list[str]:
    """Names of the files that differ from their builders, or that have none; rewritten with ``write``."""
    wanted = texts()
    present = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    changed = sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))
    for name in changed if write else ():
        if name in wanted:
            (folder / name).write_text(wanted[name], encoding="utf-8")
        else:
            (folder / name).unlink()
    return changed


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit code."""
    check = "--check" in arguments
    changed = stale(write=not check)
    for name in changed:
        sys.stdout.write(f"{'stale' if check else 'wrote'}: dashboards/{name}\n")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
