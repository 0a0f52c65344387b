"""What ships is found, listed, chosen by what somebody runs, and exported without harm."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from diag.assets.export import MEMORY, export
from diag.assets.inventory import KINDS, Asset, Choice, inventory
from diag.assets.owners import PRODUCERS, kin, owners, owners_of_pattern, part_of, same_metric
from diag.assets.rules.catalogue import FILES
from diag.assets.rules.kubernetes import prometheus_rule_path
from diag.assets.shipped import FOLDERS, File, read_text, shipped_files
from diag.errors import DiagError, UsageError
from diag.signals.algebra import Matcher


def _asset(folder: Path, path: str, text: str) -> Asset:
    source = folder / "source" / path
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text, encoding="utf-8")
    return Asset(path, "rules", path, (), File(path, source))


def test_every_kind_and_folder_ships_something() -> None:
    assets = inventory()
    assert {one.kind for one in assets} == set(KINDS)
    for name in FOLDERS:
        assert shipped_files(name), name
    assert len({one.path for one in assets}) == len(assets)
    assert all(one.title for one in assets)


def test_all_that_is_needed_are_producers_we_know() -> None:
    named = {name for one in inventory() for entry in one.needs for name in entry.split("|")}
    assert named <= set(PRODUCERS)
    for file in FILES:
        for alert in file.alerts:
            assert {name for entry in alert.needs for name in entry.split("|")} <= set(PRODUCERS), alert.name


def test_each_rule_file_of_the_catalogue_is_listed_and_no_other() -> None:
    listed = {one.path for one in inventory() if one.kind == "rules"}
    assert listed == {f"rules/{file.path}" for file in FILES}


def test_below_rules_an_export_holds_only_what_prometheus_loads() -> None:
    for one in inventory():
        top = re.findall(r"^(\w+):", one.file.read_bytes().decode("utf-8"), re.MULTILINE)
        assert (top == ["groups"]) is one.path.startswith("rules/"), one.path


def test_rules_for_the_operator_need_what_they_wrap() -> None:
    needs = {one.path: one.needs for one in inventory()}
    assert len({path for path in needs if path.startswith("examples/kubernetes/") and "-" in path}) >= len(
        FILES
    )
    for file in FILES:
        assert needs[f"examples/{prometheus_rule_path(file)}"] == file.needs


def test_an_example_that_is_no_rule_says_what_it_is() -> None:
    (routes,) = [one for one in inventory() if one.title.startswith("Alertmanager")]
    assert routes.path == "examples/alertmanager.yaml"


def test_builders_do_not_ship() -> None:
    assert [file.path for name in FOLDERS for file in shipped_files(name) if file.path.endswith(".py")] == []


@pytest.mark.parametrize(
    "path",
    ["runbooks/nowhere.md", "runbooks/../README.md", "runbooks", "/etc/passwd", "diag/__init__.py", ""],
)
def test_a_file_that_does_not_ship_is_not_read(path: str) -> None:
    with pytest.raises(DiagError, match="ships with diag"):
        read_text(path)


def test_a_runbook_is_read() -> None:
    assert "# context_growth: " in read_text("runbooks/context_growth.md")


@pytest.mark.parametrize(
    ("choice", "needs", "fits"),
    [
        (Choice(), ("vllm",), True),
        (Choice(engines=("sglang",)), ("vllm",), False),
        (Choice(engines=("sglang",)), ("vllm|sglang",), True),
        (Choice(engines=("vllm",)), ("dcgm",), True),
        (Choice(others=("node",)), ("dcgm",), False),
        (Choice(others=("node",)), ("dcgm|node",), True),
        (Choice(others=("node",)), ("dcgm", "node"), False),
        (Choice(others=("none",)), ("node",), False),
        (Choice(others=("none",)), ("vllm",), True),
        (Choice(others=("none",)), ("process",), True),
        (Choice(("vllm",), ("none",)), (), True),
    ],
)
def test_only_what_fits(choice: Choice, needs: tuple[str, ...], fits: bool) -> None:
    assert choice.fits(needs) is fits


@pytest.mark.parametrize(
    ("engines", "others", "says"),
    [
        (("tgi",), (), "--engine tgi"),
        (("dcgm",), (), "--engine dcgm"),
        ((), ("vllm",), "--needs vllm"),
        ((), ("none", "node"), "excludes"),
    ],
)
def test_a_producer_we_do_not_know_is_refused(
    engines: tuple[str, ...], others: tuple[str, ...], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        Choice(engines, others)


def test_an_export_can_be_repeated(tmp_path: Path) -> None:
    assets = [_asset(tmp_path, "rules/a.yml", "a"), _asset(tmp_path, "runbooks/b.md", "b")]
    out = tmp_path / "deep" / "out"
    assert export(assets, out).written == ("rules/a.yml", "runbooks/b.md")
    again = export(assets, out)
    assert (again.written, again.unchanged) == ((), ("rules/a.yml", "runbooks/b.md"))
    assert (out / "rules/a.yml").read_text() == "a"
    assert oct((out / "rules/a.yml").stat().st_mode)[-3:] == "644"


def test_nothing_is_written_when_a_foreign_file_is_in_the_way(tmp_path: Path) -> None:
    assets = [_asset(tmp_path, "rules/a.yml", "a"), _asset(tmp_path, "rules/b.yml", "b")]
    out = tmp_path / "out"
    (out / "rules").mkdir(parents=True)
    (out / "rules/b.yml").write_text("mine")
    with pytest.raises(DiagError, match=r"rules/b\.yml would be overwritten.*--force"):
        export(assets, out)
    assert sorted(path.name for path in out.rglob("*")) == ["b.yml", "rules"]
    assert export(assets, out, force=True).written == ("rules/a.yml", "rules/b.yml")
    assert (out / "rules/b.yml").read_text() == "b"


def test_an_edited_file_is_foreign_and_an_old_one_of_ours_is_renewed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export([_asset(tmp_path, "rules/a.yml", "old"), _asset(tmp_path, "rules/b.yml", "old")], out)
    newer = [_asset(tmp_path, "rules/a.yml", "new"), _asset(tmp_path, "rules/b.yml", "new")]
    (out / "rules/b.yml").write_text("edited")
    with pytest.raises(DiagError, match=r"rules/b\.yml"):
        export(newer, out)
    (out / "rules/b.yml").write_text("old")
    assert export(newer, out).written == ("rules/a.yml", "rules/b.yml")


def test_what_no_longer_ships_is_taken_away_unless_it_was_edited(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export([_asset(tmp_path, f"rules/{name}.yml", name) for name in "abc"], out)
    (out / "rules/c.yml").write_text("edited")
    (out / "rules/mine.yml").write_text("mine")
    done = export([_asset(tmp_path, "rules/a.yml", "a")], out)
    assert (done.removed, done.left) == (("rules/b.yml",), ("rules/c.yml",))
    assert sorted(path.name for path in (out / "rules").iterdir()) == ["a.yml", "c.yml", "mine.yml"]


def test_a_forged_memory_leads_nowhere(tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim"
    out.mkdir()
    victim.write_text("mine")
    digest = "0f2a6b38b1ce7bd6c4d8e5e8a9a7a0c3d9d1e6c0a1b2c3d4e5f60718293a4b5c"
    files = {"../victim": digest, str(victim): digest, "x/../../victim": digest}
    (out / MEMORY).write_text(json.dumps({"schema": "diag.assets/1", "files": files}))
    done = export([_asset(tmp_path, "rules/a.yml", "a")], out)
    assert (done.removed, done.left) == ((), ())
    assert victim.read_text() == "mine"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "diag.assets/1"}', '{"schema": "x", "files": 3}']
)
def test_a_broken_memory_is_none(tmp_path: Path, text: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / MEMORY).write_text(text)
    assert export([_asset(tmp_path, "rules/a.yml", "a")], out).written == ("rules/a.yml",)


def test_a_link_is_foreign(tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim"
    (out / "rules").mkdir(parents=True)
    victim.write_text("mine")
    (out / "rules/a.yml").symlink_to(victim)
    with pytest.raises(DiagError, match="would be overwritten"):
        export([_asset(tmp_path, "rules/a.yml", "a")], out)
    export([_asset(tmp_path, "rules/a.yml", "a")], out, force=True)
    assert victim.read_text() == "mine"


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DiagError, match=r"cannot write .*file"):
        export([_asset(tmp_path, "rules/a.yml", "a")], tmp_path / "file")
    if os.getuid():
        (tmp_path / "shut").mkdir(mode=0o500)
        with pytest.raises(DiagError, match="Permission denied"):
            export([_asset(tmp_path, "rules/a.yml", "a")], tmp_path / "shut")


@pytest.mark.parametrize(
    ("name", "who"),
    [
        ("vllm:kv_cache_usage_perc", ("vllm",)),
        ("sglang_num_running_reqs", ("sglang",)),
        ("http_requests_total", ("vllm",)),
        ("up", ("process",)),
        ("upper", ()),
        ("DCGM_FI_DEV_ANYTHING", ("dcgm",)),
        ("llmdiag_gpu_up", ("llmdiag",)),
        ("mine", ()),
    ],
)
def test_who_exports_a_metric(name: str, who: tuple[str, ...]) -> None:
    assert owners(name) == who


def test_who_exports_names_of_a_pattern() -> None:
    assert owners_of_pattern([Matcher("__name__", "=~", "(vllm|sglang):.+")]) == ("vllm", "sglang")
    assert owners_of_pattern([Matcher("__name__", "=~", "mine_.+")]) == ()


@pytest.mark.parametrize(
    ("wanted", "present", "found"),
    [
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", True),
        ("vllm:num_preemptions_total", "vllm:num_preemptions", True),
        ("vllm:num_preemptions", "vllm:num_preemptions_total", True),
        ("vllm:num_requests_running", "vllm_num_requests_running", True),
        ("vllm:num_requests_running", "prod_vllm:num_requests_running", True),
        ("vllm:num_requests_running", "vllm:num_requests_waiting", False),
        # Signs of life of one exporter are not spellings of one another.
        ("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_TEMP", False),
    ],
)
def test_other_spellings(wanted: str, present: str, found: bool) -> None:
    assert kin(wanted, frozenset({present, "other"})) == ((present,) if found else ())
    assert same_metric(wanted, present) is (found and not present.startswith("prod_"))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("llmdiag_gpu_up", "gpu"),
        ("llmdiag_engine_numa_match", "gpu"),
        ("llmdiag_engine_up", "engine"),
        ("llmdiag_active_sessions", "sessions"),
        ("llmdiag_up", ""),
        ("vllm:num_requests_running", ""),
    ],
)
def test_which_part_of_our_exporter_writes_it(name: str, part: str) -> None:
    assert part_of(name) == part


def test_every_series_of_our_exporter_is_written_by_the_part_that_its_page_names(checkout: Path) -> None:
    page = (checkout / "docs" / "exporter.md").read_text("utf-8")
    parts: dict[str, set[str]] = {}
    for heading, body in re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL):
        parts[heading] = {part_of(name) for name in re.findall(r"^\| `(llmdiag_\w+)`", body, re.MULTILINE)}
    assert parts == {
        "The exporter itself": {""},
        "GPUs": {"gpu"},
        "Engines": {"engine"},
        "Engine logs": {"engine"},
        "Sessions": {"sessions"},
        "Feeds": {"sessions"},
        "Proxy": {"sessions"},
    }
