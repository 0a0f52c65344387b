"""Draw the gallery: ``docs/dashboards.md`` and a PNG for each board (``make pictures``)."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from dashboards.src.pictures.asking import Line, answers, metric_names
from dashboards.src.pictures.drawing import Shot, painted
from dashboards.src.pictures.gallery import SHOWN, page
from dashboards.src.pictures.stages import Staged, staged
from dashboards.src.pictures.store import holding

__all__ = ["main"]

_ROOT = Path(__file__).resolve().parents[3]


def main() -> int:
    """Entry point; returns the exit code."""
    folder = _ROOT / "docs" / "dashboards"
    folder.mkdir(parents=True, exist_ok=True)
    boards = {name: _board(name) for name in SHOWN}
    wanted = frozenset(name for board in boards.values() for name in _names(board))
    stages = {one.stage.name: one for one in staged(_ROOT, SHOWN.values(), wanted)}
    with tempfile.TemporaryDirectory() as scratch, holding(stages.values(), Path(scratch)) as url:
        for name, stage in SHOWN.items():
            picture = painted(_shot(url, boards[name], stages[stage]))
            (folder / f"{name}.png").write_bytes(picture)
            sys.stdout.write(f"drew docs/dashboards/{name}.png ({len(picture) // 1000} kB)\n")
    text = _ROOT / "docs" / "dashboards.md"
    text.write_text(page(text.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def _board(name: str) -> dict[str, Any]:
    text = (_ROOT / "dashboards" / f"llmdiag-{name}.json").read_text(encoding="utf-8")
    model: dict[str, Any] = json.loads(text)
    return model


def _names(board: dict[str, Any]) -> frozenset[str]:
    targets = [target for panel in board["panels"] for target in panel.get("targets", ())]
    return frozenset(name for target in targets for name in metric_names(target["expr"]))


def _shot(url: str, board: dict[str, Any], stage: Staged) -> Shot:
    lines: dict[int, list[Line]] = {
        panel["id"]: [
            line for target in panel.get("targets", ()) for line in answers(url, target, stage.span())
        ]
        for panel in board["panels"]
    }
    kind = "recorded from a real engine" if stage.stage.kind == "recorded" else "simulated"
    caption = f"{stage.stage.name}, {kind}: {stage.stage.text}. Dotted: the labelled onset."
    return Shot(board, lines, stage.start, stage.end, stage.onset, caption)


if __name__ == "__main__":
    sys.exit(main())
