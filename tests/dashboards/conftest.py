"""The dashboards as committed, and a real Prometheus that holds incidents for them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dashboards.src.pictures.asking import metric_names
from dashboards.src.pictures.stages import Staged, staged
from dashboards.src.pictures.store import holding

CHECKOUT = Path(__file__).resolve().parents[2]
# Recorded and simulated, every producer of metrics that a board reads.
HELD = ("load_burst", "kv_cache_exhaustion", "fabric_flap", "sglang", "dcgm", "nvidia_smi")


@dataclass(frozen=True)
class Held:
    """A store and what is in it."""

    url: str
    stages: tuple[Staged, ...]


@pytest.fixture(scope="session")
def committed() -> dict[str, dict[str, Any]]:
    """Every dashboard by uid."""
    files = sorted((CHECKOUT / "dashboards").glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}


@pytest.fixture(scope="session")
def held(tmp_path_factory: pytest.TempPathFactory, committed: dict[str, dict[str, Any]]) -> Iterator[Held]:
    """A real Prometheus with the incidents ``HELD``."""
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            if os.environ.get("CI") == "true":
                pytest.fail(f"{program} is not installed")
            pytest.skip(f"{program} is not installed")
    panels = [panel for board in committed.values() for panel in board["panels"]]
    targets = [target for panel in panels for target in panel.get("targets", ())]
    wanted = frozenset(name for target in targets for name in metric_names(target["expr"]))
    stages = tuple(staged(CHECKOUT, HELD, wanted, instances=2))
    with holding(stages, tmp_path_factory.mktemp("boards")) as url:
        yield Held(url, stages)
