from __future__ import annotations

from pathlib import Path

import pytest

from diag.cli.config import read_defaults
from diag.errors import UsageError


def _user(tmp_path: Path, text: str) -> dict[str, str]:
    folder = tmp_path / "config" / "diag"
    folder.mkdir(parents=True)
    (folder / "diag.toml").write_text(text)
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_no_file_no_defaults(tmp_path: Path) -> None:
    assert read_defaults(tmp_path, {"HOME": str(tmp_path)}).sources == ()


def test_this_folder_wins_over_the_users_and_the_environment_over_both(tmp_path: Path) -> None:
    environment = _user(tmp_path, 'sources = ["http://user"]\nlast = "3h"\n')
    (tmp_path / "diag.toml").write_text('sources = ["http://here"]\ntop = 5\n')
    defaults = read_defaults(tmp_path, environment)
    assert (defaults.sources, defaults.last, defaults.top) == (("http://here",), "3h", 5)
    there = read_defaults(tmp_path, {**environment, "DIAG_PROMETHEUS_URL": "http://env"})
    assert there.sources == ("http://env",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("surces = []", "unknown key 'surces'; known are .*sources"),
        ("sources = 'http://x'", "list of strings"),
        ("match = [1]", "list of strings"),
        ("top = 0", "top must be a number above 0"),
        ("top = true", "top must be a number above 0"),
        ("last = 2", "last must be a string"),
        ("headers = {a = 1}", "table of strings"),
        ("last = ", "is no TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_wrong_usage(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "diag.toml").write_text(text)
    with pytest.raises(UsageError, match=says) as caught:
        read_defaults(tmp_path, {"HOME": str(tmp_path)})
    assert "diag.toml" in str(caught.value)
    assert "\n" not in str(caught.value)
