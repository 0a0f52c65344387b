"""``diag assets`` as an operator types it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diag.assets.unalerted import WITHOUT_ALERT

# The reference recording's last sample.
END = 1_795_986_020


def test_list_names_every_file_and_what_it_needs(diag: Callable[..., Any]) -> None:
    ran = diag("assets", "list")
    assert ran.code == 0
    assert "rules/engines/vllm.yml" in ran.out
    assert "dashboards/llmdiag-incident.json" in ran.out
    assert all(name in ran.out for name in WITHOUT_ALERT)
    data = json.loads(diag("assets", "list", "--json").out)
    assert data["schema"] == "diag.assets_list/1"
    assert data["without_alert"] == dict(WITHOUT_ALERT)
    (row,) = [one for one in data["assets"] if one["path"] == "rules/engines/sglang.yml"]
    assert (row["kind"], row["needs"], row["engines"]) == ("rules", ["sglang"], ["sglang"])


def test_list_and_export_agree_on_what_fits(diag: Callable[..., Any], tmp_path: Path) -> None:
    chosen = ("--engine", "vllm", "--needs", "node")
    listed = {one["path"] for one in json.loads(diag("assets", "list", *chosen, "--json").out)["assets"]}
    ran = diag("assets", "export", "out", *chosen)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"wrote {len(listed)} files to out, 0 were there already\n"
    out = tmp_path / "out"
    written = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert written == listed | {".diag-assets.json"}
    assert "rules/engines/vllm.yml" in listed
    assert "rules/engines/node.yml" in listed
    assert not listed & {"rules/engines/sglang.yml", "rules/engines/dcgm.yml", "rules/alerts/gpu.yml"}


def test_markdown_is_a_list_for_a_ticket(diag: Callable[..., Any]) -> None:
    out = diag("assets", "list", "--needs", "none", "--format", "markdown").out
    assert "\n## Rules\n\n- **rules/alerts/" in out
    assert "rules/engines/dcgm.yml" not in out


def test_exported_rules_pass_promtool(diag: Callable[..., Any], tmp_path: Path) -> None:
    promtool = shutil.which("promtool") or pytest.skip("promtool is not installed")
    assert diag("assets", "export", "out").code == 0
    # What `out/rules/**/*.yml` means with and without globstar.
    for glob in ("*/*.yml", "**/*.yml"):
        files = sorted((tmp_path / "out" / "rules").glob(glob))
        assert len(files) > 10
        done = subprocess.run(
            [promtool, "check", "rules", *files], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_export_leaves_what_is_not_ours(diag: Callable[..., Any], tmp_path: Path) -> None:
    mine = tmp_path / "out" / "runbooks" / "unknown.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine", encoding="utf-8")
    ran = diag("assets", "export", "out")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert "out/runbooks/unknown.md would be overwritten" in ran.err
    assert mine.read_text("utf-8") == "mine"
    assert diag("assets", "export", "out", "--force").code == 0
    assert mine.read_text("utf-8") != "mine"
    assert diag("assets", "export", "out", "--needs", "none").out.count("removed rules/engines/") >= 4
    assert not (tmp_path / "out/rules/engines/dcgm.yml").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("list", "--engine", "tgi"), 2, "--engine tgi is nothing we know; choose from vllm, sglang"),
        (("export", "out", "--needs", "gpu"), 2, "--needs gpu is nothing we know"),
        (("export",), 2, "Missing argument 'DIR'"),
        (("export", "diag.toml/x"), 1, "cannot write diag.toml/x"),
        (("check",), 2, "no source given"),
        (("check", "bundle.zip"), 2, "bundle.zip is no address of a store"),
        (("check", "http://127.0.0.1:1"), 1, "cannot reach http://127.0.0.1:1: connection refused"),
        (("check", "http://x", "--fail-on", "fire"), 2, "--fail-on"),
        (("check", "http://x", "--last", "1h", "--from", "5"), 2, "exclude each other"),
        (("what",), 2, "No such command 'what'"),
    ],
)
def test_wrong_usage_is_one_line(
    diag: Callable[..., Any], tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    (tmp_path / "diag.toml").write_text("", encoding="utf-8")
    ran = diag("assets", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)
    assert says in ran.err


@pytest.mark.server
def test_check_of_a_recording_tells_who_sees(diag: Callable[..., Any], prometheus: str) -> None:
    ran = diag("assets", "check", prometheus, "--from", str(END - 240), "--to", str(END), "--json")
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    states = {one["name"]: one["state"] for one in data["alerts"]}
    assert states["LLMTTFTBudgetBurnFast"] == states["LLMQueueGrowing"] == "sees"
    assert states["LLMKVCacheSaturated"] == states["LLMWatchdog"] == "sees"
    assert states["KVTransferFailing"] == "waiting"
    assert states["IBLinkFlapping"] == states["GPUThermalThrottle"] == "no_producer"
    recorded = {one["name"]: one["state"] for one in data["recordings"] if one.get("producer") == "vllm"}
    assert recorded["llm:ttft_seconds_p95"] == "sees"
    assert recorded["llm:spec_decode_acceptance_ratio"] == "waiting"
    panels = [one["state"] for one in data["panels"] if "Engine" in one["dashboard"]]
    assert panels.count("sees") > len(panels) / 2
    assert data["external_labels_missing"] == ["llmdiag_url", "grafana_url"]
    assert all(one["loaded"] == 0 for one in data["files"])


@pytest.mark.server
def test_check_fails_on_what_is_not_loaded(
    diag: Callable[..., Any], prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIAG_PROMETHEUS_URL", prometheus)
    ran = diag("assets", "check", "--from", str(END - 240), "--to", str(END), "--fail-on", "unloaded")
    assert ran.code == 10
    assert "alerts see what they judge" in ran.out.splitlines()[0]
    assert "rules/alerts/slo.yml" in ran.out
    assert "not loaded" in ran.out
