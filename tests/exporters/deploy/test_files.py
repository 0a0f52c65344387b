"""The files in deploy/ can be read by what they are for, and name things that exist."""

from __future__ import annotations

import configparser
import csv
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from diag.engines.dcgm import DCGM
from diag.engines.registry import Definition
from diag.signals.algebra import selects
from diag_exporter.cli import app
from diag_exporter.plain_yaml import parse
from diag_exporter.serve import Exporter, Server
from diag_exporter.settings import DEFAULT_LISTEN, Address, merged

FOLDER = Path(__file__).resolve().parents[3] / "deploy"
YAML = sorted([*FOLDER.rglob("*.yaml"), *FOLDER.rglob("*.yml")])


def _documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text("utf-8")) if one]


def _known(arguments: list[str]) -> None:
    """Fail unless the command and its flags exist."""
    command = typer.main.get_command(app).commands[arguments[0]]  # type: ignore[attr-defined]
    flags = {name for parameter in command.params for name in parameter.opts}
    assert {one for one in arguments[1:] if one.startswith("--")} <= flags


def _containers(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for document in _documents(path):
        if document["kind"] in ("DaemonSet", "Deployment"):
            spec = document["spec"]["template"]["spec"]
            for container in spec["containers"]:
                yield spec, container


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_is_yaml(path: Path) -> None:
    assert _documents(path)


@pytest.mark.parametrize("path", sorted((FOLDER / "kubernetes").glob("*.yaml")), ids=lambda path: path.name)
def test_manifests_agree_with_the_command_and_the_server(path: Path) -> None:
    for spec, container in _containers(path):
        _known(container["args"])
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert f":{ports['metrics']}" == container["args"][container["args"].index("--listen") + 1]
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        assert mounted <= {volume["name"] for volume in spec.get("volumes", [])}
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] in ports
        assert container["livenessProbe"]["httpGet"]["path"] == "/-/healthy"
        assert container["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    for document in _documents(path):
        if "selector" in document.get("spec", {}) and "template" in document["spec"]:
            labels = document["spec"]["template"]["metadata"]["labels"]
            assert document["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_gpu_pods_see_the_hosts_pids_and_take_no_gpu() -> None:
    ((spec, container),) = _containers(FOLDER / "kubernetes" / "gpu-daemonset.yaml")
    assert spec["hostPID"] is True
    assert "nvidia.com/gpu" not in json.dumps(container["resources"])


def test_monitors_select_what_is_deployed() -> None:
    folder = FOLDER / "kubernetes"
    service = next(one for one in _documents(folder / "sessions-deployment.yaml") if one["kind"] == "Service")
    pods = _documents(folder / "gpu-daemonset.yaml")[0]["spec"]["template"]
    by_kind = {one["kind"]: one["spec"] for one in _documents(folder / "servicemonitor.yaml")}
    monitor = by_kind["ServiceMonitor"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {one["port"] for one in monitor["endpoints"]} <= {one["name"] for one in service["spec"]["ports"]}
    selector = by_kind["PodMonitor"]["selector"]["matchLabels"]
    assert selector.items() <= pods["metadata"]["labels"].items()


def test_the_compose_file_mounts_what_is_there_and_scrapes_what_runs() -> None:
    folder = FOLDER / "compose"
    (compose,) = _documents(folder / "compose.yaml")
    services = compose["services"]
    exporter = services["diag-exporter"]
    _known(exporter["command"])
    assert exporter["pid"] == "host"
    build = exporter["build"]
    root = (folder / build["context"]).resolve()
    assert (root / build["dockerfile"]).is_file()
    assert (root / "pyproject.toml").is_file()
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (folder / source).exists(), source
    (prometheus,) = _documents(folder / "prometheus" / "prometheus.yml")
    targets = {one["job_name"]: one["static_configs"][0]["targets"] for one in prometheus["scrape_configs"]}
    port = exporter["command"][exporter["command"].index("--listen") + 1]
    assert targets["llmdiag"] == [f"diag-exporter{port}"]
    (source,) = _documents(folder / "grafana/provisioning/datasources/prometheus.yaml")
    assert source["datasources"][0]["url"] == "http://prometheus:9090"


@pytest.mark.server
def test_prometheus_takes_its_configuration() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("CI") == "true":
            pytest.fail("promtool is not installed")
        pytest.skip("promtool is not installed")
    path = FOLDER / "compose" / "prometheus" / "prometheus.yml"
    done = subprocess.run(
        [promtool, "check", "config", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_grafana_finds_its_dashboards() -> None:
    folder = FOLDER / "compose" / "grafana"
    (provider,) = _documents(folder / "provisioning" / "dashboards" / "files.yaml")
    mounted = provider["providers"][0]["options"]["path"]
    (compose,) = _documents(FOLDER / "compose" / "compose.yaml")
    assert any(f":{mounted}:" in volume for volume in compose["services"]["grafana"]["volumes"])
    boards = [json.loads(path.read_text("utf-8")) for path in (folder / "dashboards").glob("*.json")]
    assert boards
    text = json.dumps(boards)
    from diag_exporter.reference import entries

    names = {entry.family.name for some in entries().values() for entry in some}
    used = {re.sub(r"_(bucket|sum|count)$", "", one) for one in re.findall(r"\bllmdiag_\w+", text)}
    assert used
    assert used <= names


def test_the_unit_starts_a_command_that_exists() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FOLDER / "systemd" / "diag-exporter.service")
    program, *arguments = unit["Service"]["ExecStart"].split()
    assert program.endswith("/diag-exporter")
    _known(arguments)
    assert "HUP" in unit["Service"]["ExecReload"]
    assert unit["Service"]["Restart"] == "always"
    verify = shutil.which("systemd-analyze")
    if verify:
        done = subprocess.run(
            [verify, "verify", "--man=no", str(FOLDER / "systemd" / "diag-exporter.service")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "Unknown" not in done.stderr


def test_the_settings_are_taken() -> None:
    settings = merged({}, FOLDER / "systemd" / "exporter.toml")
    assert settings.listen == DEFAULT_LISTEN
    assert settings.engine


def test_both_readers_of_yaml_agree_on_the_web_configuration() -> None:
    text = (FOLDER / "systemd" / "web.yml").read_text("utf-8")
    assert parse(text) == yaml.safe_load(text)


def test_the_counters_file_has_what_triage_asks_dcgm_for() -> None:
    lines = (FOLDER / "dcgm" / "counters.csv").read_text("utf-8").splitlines()
    rows = list(
        csv.reader((line for line in lines if line and not line.startswith("#")), skipinitialspace=True)
    )
    fields = [row[0] for row in rows]
    assert all(len(row) == 3 and row[1] in ("gauge", "counter") for row in rows)
    assert len(set(fields)) == len(fields)
    asked = {
        one.names[0]
        for definition in DCGM.signals.values()
        if isinstance(definition, Definition)
        for one in selects(definition.expr)
    }
    assert asked <= set(fields)


def test_the_default_address_is_loopback() -> None:
    server = Server(Address("127.0.0.1", 0), Exporter({}))
    server.server_close()
    assert DEFAULT_LISTEN.startswith("127.0.0.1:")
    assert server.url.startswith("http://127.0.0.1:")
