"""`diag --help` is typed in an incident: nothing heavy may be imported for it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import diag as package

HEAVY = ("numpy", "pandas", "scipy", "rich", "requests", "msgspec", "matplotlib", "diag.model", "diag.api")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["triage", "--help"], ["--version"], ["triage", "--nonsense"]]
)
def test_starting_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from diag.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        f"print('LOADED', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True, timeout=30
    )
    assert ran.stdout.splitlines()[-1] == "LOADED []"


def test_help_names_every_command(diag: Callable[..., Any]) -> None:
    ran = diag("--help")
    assert ran.code == 0
    for command in ("demo", "triage", "check", "explain", "record"):
        assert f"  {command} " in ran.out
    assert diag().out == ran.out


def test_version(diag: Callable[..., Any]) -> None:
    ran = diag("--version")
    assert (ran.code, ran.out) == (0, f"diag {package.__version__}\n")


@pytest.mark.parametrize("command", ["triage", "check", "record"])
def test_common_options_are_those_of_the_contract(diag: Callable[..., Any], command: str) -> None:
    text = diag(command, "--help").out
    for option in (
        "--last", "--from", "--to", "--baseline-from", "--baseline-to", "--match", "--requests",
        "--requests-map", "--requests-preset", "--log", "--events", "--for", "--debug", "--header",
        "--bearer-token-file", "--basic-auth-file", "--client-cert", "--client-key", "--ca-file",
        "--timeout", "-o, --output",
    ):  # fmt: skip
        assert f"{option} " in text, option


def test_the_public_names_are_sorted_and_there() -> None:
    assert package.__all__ == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_the_call_is_not_hidden_by_the_floor_of_the_same_name() -> None:
    script = (
        "import diag.triage\n"
        "from diag.triage import triage as judge\n"
        "import diag\n"
        "assert diag.triage is not judge\n"
        "assert diag.triage.__module__ == 'diag.api', diag.triage\n"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", script], cwd=root, check=True, timeout=30)


@pytest.mark.parametrize("name", ["nonsense", "_private"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(package, name)


def test_the_types_name_what_the_package_names(checkout: Path) -> None:
    tree = ast.parse((checkout / "diag" / "__init__.pyi").read_text(encoding="utf-8"))
    imported = [alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(imported) == package.__all__
