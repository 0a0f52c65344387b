"""Habits that a reader relies on, checked over every tracked file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
MODULES = sorted([*(CHECKOUT / "diag").rglob("*.py"), *(CHECKOUT / "exporters").rglob("*.py")])
LONGEST_FILE = 400
# The one door to a folder whose parts nobody else imports; it may pass their names on.
FRONTS = {"exporters/diag_exporter/sessions/proxy.py"}


def _tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    paths = (CHECKOUT / name for name in done.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def _name(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def _offered(tree: ast.Module) -> set[str]:
    """Public functions and classes that the module itself defines; aliases and constants may stay local."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")}


def _defined(tree: ast.Module) -> set[str]:
    """Every public name that the module itself defines, imports left out."""
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                several = [part for one in targets if isinstance(one, ast.Tuple) for part in one.elts]
                names |= {one.id for one in (*targets, *several) if isinstance(one, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return {name for name in names if not name.startswith("_")}


def _exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            return list(ast.literal_eval(node.value))
    return None


def _is_room(path: Path) -> bool:
    """Rooms share one set of public names by protocol, and only the table of contents imports them."""
    return path.parent.name == "hypotheses" and path.stem not in {"__init__", "registry"}


@pytest.mark.parametrize("path", [path for path in MODULES if _is_room(path)], ids=_name)
def test_a_room_offers_its_card_and_nothing_else(path: Path) -> None:
    offered = {"CARD"} if path.stem == "unknown" else {"CARD", "NEEDS", "examine"}
    constants = {name for name in _defined(ast.parse(path.read_text("utf-8"))) if name.isupper()}
    assert offered - {"examine"} <= constants
    assert _offered(ast.parse(path.read_text("utf-8"))) == offered & {"examine"}


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.name != "__main__.py" and not _is_room(path)], ids=_name
)
def test_all_names_what_is_public(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    exported = _exported(tree)
    if exported is None and path.name == "__init__.py" and len(tree.body) == 1:
        return  # a folder that only says what it is
    assert exported is not None, "has no __all__"
    assert len(set(exported)) == len(exported)
    # A command's function is reached through `command`; its name is what the user types.
    if path.parent.name != "cli" and path.name != "cli.py":
        assert _offered(tree) - set(exported) == set()
    if path.name != "__init__.py" and _name(path) not in FRONTS:
        assert set(exported) <= _defined(tree)


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))


def test_no_file_is_too_long() -> None:
    lengths = {
        _name(path): len(path.read_text("utf-8").splitlines()) for path in _tracked() if path.suffix == ".py"
    }
    assert {name: count for name, count in lengths.items() if count > LONGEST_FILE} == {}


def test_no_vague_module_names() -> None:
    vague = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
    assert [_name(path) for path in _tracked() if path.suffix == ".py" and path.stem in vague] == []


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    # Spelled in halves, so that this file does not trip over itself.
    registries = ["py" + "pi.org", "python" + "hosted.org", "npm" + "js", "crates" + ".io"]
    machine = [r"(?<![\w.])/wo" + r"rk/", r"/tmp/ve" + "nv", r"/ro" + r"ot/", "bash_" + "jobs"]
    pattern = re.compile("|".join([*(re.escape(name) for name in registries), *machine]))
    found = []
    for path in _tracked():
        if path.suffix in {".gz", ".png"}:
            continue
        text = path.read_text("utf-8", errors="replace")
        found += [f"{_name(path)}: {match.group()}" for match in pattern.finditer(text)]
    assert found == []


def test_help_imports_nothing_heavy() -> None:
    heavy = ["jinja2", "matplotlib", "msgspec", "numpy", "pandas", "requests", "rich", "scipy"]
    program = (
        "import sys\nfrom diag.cli import main\nsys.argv = ['diag', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_the_exporters_help_imports_nothing_heavy() -> None:
    heavy = [
        "aiohttp",
        "google",
        "numpy",
        "pandas",
        "prometheus_client",
        "pynvml",
        "requests",
        "rich",
        "scipy",
    ]
    program = (
        "import sys\nfrom diag_exporter.cli import main\n"
        "try:\n    main(['all', '--help'])\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=CHECKOUT / "exporters",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_every_command_of_the_exporter_is_documented(checkout: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "diag_exporter", "--help"],
        cwd=checkout / "exporters", capture_output=True, text=True, check=True,
    )  # fmt: skip
    commands = re.findall(r"^  ([a-z]+)  +\S", done.stdout.partition("Commands:")[2], re.MULTILINE)
    assert {"all", "demo", "engine", "gpu", "sessions"} <= set(commands)
    text = (checkout / "docs" / "exporter.md").read_text("utf-8")
    assert [name for name in commands if f"diag-exporter {name}" not in text] == []


def test_every_command_is_documented(checkout: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "diag", "--help"], cwd=checkout, capture_output=True, text=True, check=True
    )
    commands = re.findall(r"^  ([a-z]+)  +\S", done.stdout.partition("Commands:")[2], re.MULTILINE)
    assert {"check", "demo", "explain", "record", "triage"} <= set(commands)
    readme = (checkout / "README.md").read_text("utf-8")
    assert [name for name in commands if f"`diag {name}" not in readme] == []


def test_every_command_below_assets_is_documented(checkout: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "diag", "assets", "--help"],
        cwd=checkout, capture_output=True, text=True, check=True,
    )  # fmt: skip
    commands = re.findall(r"^  ([a-z]+)  +\S", done.stdout.partition("Commands:")[2], re.MULTILINE)
    assert commands == ["list", "export", "check"]
    readme = (checkout / "README.md").read_text("utf-8")
    assert [name for name in commands if f"`diag assets {name}" not in readme] == []
