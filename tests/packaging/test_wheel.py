"""The wheel alone, in an environment of its own, answers from another folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from diag.assets.export import MEMORY
from diag.assets.shipped import FOLDERS, shipped_files

pytestmark = pytest.mark.wheel

CLEAN = os.environ.get("CI") == "true"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = Path(__file__).resolve().parents[2]
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if not CLEAN:
        command.append("--no-build-isolation")
    subprocess.run([*command, "--wheel-dir", str(folder), str(checkout)], check=True)
    (built,) = folder.glob("llm_diag-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of scripts of an environment that holds the wheel and, in CI, only what it asks for."""
    folder = tmp_path_factory.mktemp("clean") / "environment"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if CLEAN:
        subprocess.run([*install, str(wheel)], check=True)
    else:
        # Quick at a desk: the dependencies are lent by the environment that runs the tests.
        subprocess.run([*install, "--no-deps", str(wheel)], check=True)
        lent = [path for path in sys.path if path.endswith("site-packages")]
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "lent.pth").write_text("\n".join(lent) + "\n", encoding="utf-8")
    return folder / "bin"


def _run(program: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path, checkout: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"diag", "diag_exporter"}
    assert {"diag/py.typed", "diag_exporter/py.typed", "diag_exporter/gpu/nvml.py"} <= set(names)
    assert "diag/_shipped/incidents/context_growth.tar.gz" in names
    shipped = {name.removeprefix("diag/_shipped/") for name in names if name.startswith("diag/_shipped/")}
    shipped = {name for name in shipped if not name.startswith("incidents/")}
    # The same list that a checkout finds: `diag assets` says the same from both.
    assert shipped == {file.path for name in FOLDERS for file in shipped_files(name)}
    assert {path.name for path in (checkout / "runbooks").glob("*.md")} <= {
        Path(name).name for name in shipped
    }
    licences = {Path(name).name for name in names if ".dist-info/" in name}
    assert {"LICENSE", "NOTICE"} <= licences


def test_the_installed_demo_names_the_cause(installed: Path, tmp_path: Path) -> None:
    done = _run(installed / "diag", "demo", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"leading":"context_growth"' in done.stdout.replace('": "', '":"')
    where = _run(installed / "python", "-c", "import diag; print(diag.__file__)", folder=tmp_path)
    assert str(installed.parent) in where.stdout


def test_the_installed_exporter_runs(installed: Path, tmp_path: Path) -> None:
    done = _run(installed / "diag-exporter", "all", "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--web-config" in done.stdout
    done = _run(installed / "diag-exporter", "demo", "--script", "nowhere.json", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("diag-exporter: script nowhere.json cannot be read"), done.stderr


def test_the_installed_assets_are_exported(installed: Path, tmp_path: Path, checkout: Path) -> None:
    listed = _run(installed / "diag", "assets", "list", "--json", folder=tmp_path)
    assert listed.returncode == 0, listed.stderr
    done = _run(installed / "diag", "assets", "export", "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    paths = {one["path"] for one in json.loads(listed.stdout)["assets"]}
    written = {path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {path.relative_to(tmp_path / "out").as_posix() for path in written} == paths | {MEMORY}
    for path in paths:
        if path.startswith(("rules/", "dashboards/", "runbooks/")):
            assert (tmp_path / "out" / path).read_bytes() == (checkout / path).read_bytes()


def test_the_installed_check_finds_its_libraries(installed: Path, tmp_path: Path) -> None:
    done = _run(installed / "diag", "assets", "check", "http://127.0.0.1:1", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("diag: cannot reach http://127.0.0.1:1"), done.stderr


def test_the_installed_runbook_opens(installed: Path, tmp_path: Path) -> None:
    done = _run(installed / "diag", "explain", "context_growth", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "context_growth" in done.stdout
