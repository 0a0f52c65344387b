"""Generated files are fresh, and the generator gives the same bytes twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from diag.assets.generate import stale
from diag.assets.incidents import SHIPPED, index_text, members, pack, read_members
from diag.assets.readme import BEGIN, END, filled
from diag.assets.rules.written import stale_rules


def test_nothing_generated_is_stale(checkout: Path) -> None:
    assert stale(checkout) == []


def test_packing_is_reproducible_and_loses_nothing(incidents: Path) -> None:
    files = members(incidents / "healthy_a")
    packed = pack("healthy", files)
    assert packed == pack("healthy", dict(reversed(files.items())))
    assert read_members(packed) == files
    assert {"bundle.json", "metrics/engine.jsonl.gz"} <= set(files)


def test_a_changed_recording_makes_the_archive_stale(checkout: Path, tmp_path: Path) -> None:
    for name in ("diag/_shipped/incidents", "rules", "runbooks", "tests/incidents", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(checkout / name)
    (tmp_path / "tests/incidents").unlink()
    for item in SHIPPED:
        folder = tmp_path / "tests/incidents" / item.recording
        folder.parent.mkdir(exist_ok=True)
        folder.symlink_to(checkout / "tests/incidents" / item.recording)
    broken = tmp_path / "tests/incidents" / SHIPPED[0].recording
    broken.unlink()
    broken.mkdir()
    (broken / "bundle.json").write_text("{}", encoding="utf-8")
    (tmp_path / "diag/__init__.py").touch()
    (tmp_path / "diag/__main__.py").write_text("print('answer')\n", encoding="utf-8")
    assert stale(tmp_path) == [f"diag/_shipped/incidents/{SHIPPED[0].file}", "README.md"]


def test_the_shipped_incidents_stay_small(checkout: Path) -> None:
    folder = checkout / "diag" / "_shipped" / "incidents"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 700_000
    assert {path.name for path in folder.iterdir()} == {"index.toml", *(item.file for item in SHIPPED)}


def test_the_index_is_toml_with_unique_names() -> None:
    import tomllib

    rows = tomllib.loads(index_text())["incident"]
    assert [row["name"] for row in rows] == sorted({item.name for item in SHIPPED})
    assert all(set(row) == {"name", "description", "file"} for row in rows)


def test_a_readme_without_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="no block"):
        filled("# nothing here\n", "x")
    assert filled(f"a\n{BEGIN}\nold\n{END}\nb", r"new \1") == (
        f"a\n{BEGIN}\n```console\n$ diag demo\nnew \\1\n```\n{END}\nb"
    )


def test_a_rule_changed_by_hand_is_stale_and_written_anew(checkout: Path, tmp_path: Path) -> None:
    shutil.copytree(checkout / "rules", tmp_path / "rules")
    edited, extra = tmp_path / "rules/alerts/cache.yml", tmp_path / "rules/alerts/old.yml"
    right = edited.read_text(encoding="utf-8")
    edited.write_text(right.replace("> 0.95", "> 0.5"), encoding="utf-8")
    extra.touch()

    assert stale_rules(tmp_path, write=False) == ["rules/alerts/cache.yml", "rules/alerts/old.yml"]
    assert stale_rules(tmp_path, write=True) == ["rules/alerts/cache.yml", "rules/alerts/old.yml"]
    assert edited.read_text(encoding="utf-8") == right
    assert not extra.exists()
    assert stale_rules(tmp_path, write=False) == []
