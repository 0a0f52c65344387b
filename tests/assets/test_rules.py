"""The rules as data: what the proofs over the committed files cannot see."""

import re
import subprocess

import promql_parser
import pytest

from diag.assets.rules import thresholds
from diag.assets.rules.alertmanager import INHIBITIONS, alertmanager_text
from diag.assets.rules.catalogue import ALERTS, FILES, alert
from diag.assets.rules.gpu import FATAL_XIDS
from diag.assets.rules.kubernetes import prometheus_rule, prometheus_rule_path
from diag.assets.rules.links import Links
from diag.assets.rules.model import Threshold, duration
from diag.assets.rules.recordings import kept_labels, recorded, recordings
from diag.assets.rules.yaml_text import file_text, readable
from diag.engines import ENGINES, engine
from diag.errors import SignalError, UsageError
from diag_exporter.gpu.collectors.xid import XID_CLASSES


def test_an_xid_is_as_fatal_to_the_rules_as_to_the_exporter():
    assert set(FATAL_XIDS) == {code for code, kind in XID_CLASSES.items() if kind == "fatal"}


def test_every_threshold_has_a_reason_and_an_alert_that_reads_it():
    known = {name: getattr(thresholds, name) for name in thresholds.__all__}
    used = {id(one) for entry in ALERTS for one in entry.thresholds}

    assert all(isinstance(one, Threshold) and len(one.reason) > 20 for one in known.values())
    assert {name for name, one in known.items() if id(one) not in used} == set()


def test_the_thresholds_of_an_alert_stand_in_its_expression():
    # The bounds of the histograms and the objective stand in the recordings.
    elsewhere = {id(thresholds.TTFT_OBJECTIVE), id(thresholds.TTFT_BOUND), id(thresholds.SGLANG_TTFT_BOUND)}
    elsewhere.add(id(thresholds.INTER_TOKEN_BOUND))
    for entry in ALERTS:
        for one in entry.thresholds:
            assert id(one) in elsewhere or f" {one}" in entry.expr, (entry.name, one)


@pytest.mark.parametrize("name", [one.name for one in ENGINES])
def test_an_engine_s_recordings_look_back_alike_and_read_no_recording(name):
    for one in recordings(engine(name)):
        assert "[300s]" not in one.expr
        assert ":" in one.record
        assert not re.search(r"\b(?:llm|gpu|host|fabric|requests|slo):", one.expr)


def test_a_recording_keeps_the_job_and_the_model_where_every_metric_has_it():
    vllm = engine("vllm")

    assert kept_labels(vllm, "ttft_seconds_p95")[:3] == ("cluster", "job", "instance")
    assert "model_name" in kept_labels(vllm, "ttft_seconds_p95")
    assert "le" not in kept_labels(vllm, "ttft_seconds_p95")
    assert "model_name" not in kept_labels(vllm, "http_requests_per_second")
    assert {"uuid", "node", "gpu"} <= set(kept_labels(engine("dcgm"), "gpu_power_watts"))
    assert "UUID" not in kept_labels(engine("dcgm"), "gpu_power_watts")


def test_a_recorded_name_says_whose_signal_it_is():
    assert recorded("ttft_seconds_p95") == "llm:ttft_seconds_p95"
    assert recorded("gpu_power_watts") == "gpu:power_watts"
    assert recorded("node_load1") == "host:load1"
    assert recorded("node_infiniband_port_state") == "fabric:infiniband_port_state"
    assert recorded("aborted_ratio") == "requests:aborted_ratio"
    with pytest.raises(SignalError, match="not recorded"):
        recorded("target_up")


def test_laying_an_expression_out_changes_nothing_but_its_looks():
    for one in (entry for file in FILES for entry in file.recordings):
        laid_out, plain = promql_parser.parse(readable(one.expr)), promql_parser.parse(one.expr)
        assert laid_out.prettify() == plain.prettify()


def test_links_can_carry_addresses_instead_of_external_labels():
    links = Links(service="https://diag.example", grafana="https://grafana.example", version="9")
    told = alert("LLMQueueGrowing").annotations(links)

    assert told["runbook_url"] == "https://diag.example/runbooks/queue_growing?v=9"
    assert told["dashboard_url"].startswith("https://grafana.example/d/llmdiag-engine?var-instance=")
    assert "$externalLabels" not in "".join(told.values())


def test_inhibitions_name_alerts_that_exist_and_labels_that_must_be_there():
    for item in INHIBITIONS:
        assert {alert(name).name for name in (*item.sources, *item.targets)} == {*item.sources, *item.targets}
        assert not set(item.sources) & set(item.targets)
        # Without it, all that lack the label would be muted at once.
        assert set(item.present) <= set(item.equal)
        assert item.present


def test_an_unknown_alert_is_one_clear_line():
    with pytest.raises(UsageError, match="no alert is called 'LLMNothing'"):
        alert("LLMNothing")


def test_alertmanager_takes_the_example(tmp_path):
    path = tmp_path / "alertmanager.yml"
    path.write_text(alertmanager_text(), encoding="utf-8")
    done = subprocess.run(["amtool", "check-config", str(path)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(INHIBITIONS)} inhibit rules" in done.stdout

    for labels, receiver in (
        (("service=llm", "severity=critical"), "page"),
        (("service=llm", "severity=warning"), "ticket"),
        (("service=llm", "severity=info"), "nobody"),
        (("service=llm", "severity=none"), "deadman"),
    ):
        command = ["amtool", "config", "routes", "test", f"--config.file={path}", *labels]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == receiver


def test_a_prometheus_rule_holds_the_same_rules():
    yaml = pytest.importorskip("yaml")
    for file in FILES:
        wrapped = yaml.safe_load(prometheus_rule(file))
        assert wrapped["kind"] == "PrometheusRule"
        assert wrapped["spec"] == yaml.safe_load(file_text(file))
        assert prometheus_rule_path(file).endswith(".yaml")


def test_durations_are_written_in_the_longest_unit_that_fits():
    assert [duration(one) for one in (0, 30, 90, 120, 3600, 86_400)] == ["0s", "30s", "90s", "2m", "1h", "1d"]


def test_a_link_sets_the_variable_that_the_label_is_meant_for():
    def dashboard(name: str) -> str:
        return alert(name).annotations(Links(grafana="g"))["dashboard_url"]

    assert dashboard("LLMQueueGrowing") == "g/d/llmdiag-engine?var-instance={{ $labels.instance | urlquery }}"
    for name in ("GPUThermalThrottle", "IBLinkFlapping", "LLMHostOOMKill", "GPULost"):
        assert dashboard(name).endswith("?var-host={{ $labels.instance | urlquery }}"), name
    assert dashboard("LLMEngineUnhealthy").endswith("?var-instance={{ $labels.engine | urlquery }}")
    assert dashboard("LLMExporterAbsent") == "g/d/llmdiag-incident"
