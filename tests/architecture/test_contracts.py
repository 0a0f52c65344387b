"""Each import contract breaks when somebody breaks it: one planted violation a contract, one run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# contract name's first word -> (module that gets a forbidden line, the line, what the report must name)
PLANTED = {
    "Floors": ("model.py", "import diag.detectors.findings", "diag.model -> diag.detectors"),
    "Rooms": (
        "hypotheses/load_burst.py",
        "import diag.hypotheses.long_outputs",
        "diag.hypotheses.load_burst -> diag.hypotheses.long_outputs",
    ),
    "Core": ("detectors/findings.py", "import socket", "diag.detectors.findings -> socket"),
    "Evaluators": (
        "renderers/markdown.py",
        "import diag.signals.promql",
        "diag.renderers.markdown -> diag.signals.promql",
    ),
    "Engines": (
        "renderers/json.py",
        "import diag.engines.registry",
        "diag.renderers.json -> diag.engines.registry",
    ),
    "Doors": ("api/__init__.py", "import requests", "diag.api -> requests"),
    "Exporter": ("diag_exporter/page.py", "import diag.quantities", "diag_exporter.page -> diag.quantities"),
    "Weight": ("diag_exporter/settings.py", "import numpy", "diag_exporter.settings -> numpy"),
    "Parts": (
        "diag_exporter/gpu/options.py",
        "import diag_exporter.sessions.events",
        "diag_exporter.gpu.options -> diag_exporter.sessions.events",
    ),
    "Served": (
        "diag_exporter/gpu/host.py",
        "import diag_exporter.page",
        "diag_exporter.gpu.host -> diag_exporter.page",
    ),
    "Driver": ("diag_exporter/demo.py", "import pynvml", "diag_exporter.demo -> pynvml"),
    "Parser": (
        "sources/planning.py",
        "import promql_parser",
        "diag.sources.planning -> promql_parser",
    ),
    "Installed": ("assets/generate.py", "import dashboards.src", "diag.assets.generate -> dashboards"),
    "Statistics": ("detectors/symptoms.py", "import scipy", "diag.detectors.symptoms -> scipy"),
}


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{folder}{os.pathsep}{folder / 'exporters'}",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    checkout = Path(__file__).resolve().parents[2]
    copy = tmp_path_factory.mktemp("planted")
    leave = shutil.ignore_patterns("__pycache__", "_shipped")
    shutil.copytree(checkout / "diag", copy / "diag", ignore=leave)
    shutil.copytree(checkout / "exporters", copy / "exporters", ignore=leave)
    shutil.copy(checkout / "pyproject.toml", copy)
    for module, line, _ in PLANTED.values():
        path = copy / ("exporters" if module.startswith("diag_exporter/") else "diag") / module
        path.write_text(path.read_text(encoding="utf-8") + f"\n{line}  # planted\n", encoding="utf-8")
    done = _lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("contract", sorted(PLANTED))
def test_a_planted_violation_breaks_its_contract(report: str, contract: str) -> None:
    assert re.search(rf"^{contract}: .* BROKEN", report, re.MULTILINE), report
    # The details follow a heading with the contract's full name; the next heading ends them.
    details = report.rsplit(f"\n{contract}: ", 1)[1]
    section = re.split(r"\n(?:" + "|".join(PLANTED) + "): ", details)[0]
    assert PLANTED[contract][2] in re.sub(r" \(l\.\d+\)", "", section)


def test_every_contract_has_a_planted_violation(checkout: Path) -> None:
    names = re.findall(r'^name = "(\w+): ', (checkout / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert sorted(names) == sorted(PLANTED)


def test_the_tree_keeps_every_contract(checkout: Path) -> None:
    done = _lint(checkout)
    assert done.returncode == 0, done.stdout
    assert f"Contracts: {len(PLANTED)} kept, 0 broken." in done.stdout
