"""What a store would see of rules and panels, and the reason where it sees nothing: asked of a real one."""

from __future__ import annotations

from typing import Any

import pytest

from diag.api import assets as api
from diag.assets import told
from diag.assets.checking import Checked, Expectation, Sight, expectations, loaded, sights
from diag.assets.rules.catalogue import ALERTS, FILES
from diag.assets.rules.links import DEFAULT_LINKS
from diag.errors import NotPrometheus, UsageError
from diag.model import Window
from diag.sources.promstate import LoadedRule

pytestmark = pytest.mark.server

RUNNING = "vllm:num_requests_running"


def _one(odd: Any, expr: str, kind: str = "alert", **fields: Any) -> Sight:
    wanted = Expectation(kind, "X", "x.yml", (expr,), **fields)  # type: ignore[arg-type]
    (found,) = sights([wanted], odd.holdings())
    return found


@pytest.mark.parametrize(
    ("expr", "state", "kind", "says"),
    [
        (f"{RUNNING} > 100", "sees", "", ""),
        (f"sum by (job) ({RUNNING}) / on (job) sum by (job) (up) > 1", "sees", "", ""),
        ("absent(nothing)", "sees", "", ""),
        ("vector(1)", "sees", "", ""),
        ("rate(vllm:num_preemptions_total[5m]) or rate(vllm:num_preemptions[5m])", "sees", "", ""),
        ("llm:kv_cache_usage_ratio > 0.9", "sees", "", ""),
        ("max_over_time(llm:waiting_requests[30m]) > 10", "sees", "", ""),
        ("rate(vllm:num_preemptions_total[5m]) > 0", "blind", "renamed", "is called vllm:num_preemptions"),
        ("vllm:kv_cache_usage_perc > 0.9", "blind", "renamed", "is called vllm:gpu_cache_usage_perc here"),
        ("vllm:num_requests_waiting > 9", "blind", "renamed", "is called vllm_num_requests_waiting here"),
        ("vllm:requests_lost_total > 0", "blind", "metric_absent", "vLLM here does not export vllm:requests"),
        ("vllm:nixl_num_failed_transfers_total > 0", "waiting", "feature_off", "it takes a KV connector"),
        ("mine > 0", "blind", "metric_absent", "no series mine"),
        ('rate(vllm:request_success_total{finished_reason="abort"}[5m]) > 0', "blind", "label_missing",
         "vllm:request_success_total has no label finished_reason"),
        ('rate(vllm:time_to_first_token_seconds_bucket{le="5.0"}[5m]) > 0', "blind", "bucket_missing",
         'no bucket le="5.0"; its bounds are 1.0, 10.0, +Inf'),
        ('up{job="sglang"} == 0', "blind", "value_absent", 'up has no job="sglang", only "dcgm", "vllm"'),
        ('up{job="vllm",instance="n:9400"} == 0', "blind", "value_absent", 'no series up{job="vllm"'),
        ('{__name__=~"mine_.+"} > 0', "blind", "metric_absent", "no series {__name__"),
        (f"{RUNNING} * DCGM_FI_DEV_GPU_TEMP > 1", "blind", "label_missing", "Hostname"),
        (f"{RUNNING} * on (instance) DCGM_FI_DEV_GPU_TEMP > 1", "blind", "no_pair", "never meet on instance"),
        (f"{RUNNING} * on (uuid) group_left () up > 1", "blind", "refused", "many"),
        (f"{RUNNING} offset 1d > 1", "waiting", "too_young", "is 1d old"),
        ("rate(vllm:num_preemptions[30s]) > 1", "blind", "no_history", "too few samples"),
        ('http_requests_total{status="500"} > 0', "waiting", "first_event", "appears with the first event"),
        ("node_load1 > 9", "no_producer", "producer_absent", "no node_exporter is scraped"),
        ('{__name__=~"sglang:.+"} > 9', "no_producer", "producer_absent", "no SGLang is scraped"),
        ("llmdiag_gpu_xid_total > 0 or DCGM_EXP_XID_ERRORS_COUNT > 0", "blind", "metric_absent",
         "dcgm-exporter here does not export DCGM_EXP_XID_ERRORS_COUNT"),
    ],
)  # fmt: skip
def test_what_an_alert_would_see(odd: Any, expr: str, state: str, kind: str, says: str) -> None:
    found = _one(odd, expr)
    assert found.state == state, found.reasons
    if state == "sees":
        assert found.reasons == ()
    else:
        assert found.reasons[0].kind == kind
        assert says in found.reasons[0].text


@pytest.mark.parametrize(
    ("expr", "state", "kind"),
    [
        (f"{RUNNING} > 100", "waiting", "filtered"),
        (f"{RUNNING} > 1", "sees", ""),
        (f"{RUNNING} unless {RUNNING}", "waiting", "excluded"),
        (f"{RUNNING} > on (instance) sum by (instance) ({RUNNING})", "waiting", "filtered"),
    ],
)
def test_a_panel_that_shows_only_what_is_wrong_waits(odd: Any, expr: str, state: str, kind: str) -> None:
    found = _one(odd, expr, "panel")
    assert (found.state, [reason.kind for reason in found.reasons]) == (state, [kind] if kind else [])


def test_a_panel_sees_if_one_query_does(odd: Any) -> None:
    (found,) = sights([Expectation("panel", "P", "B", ("mine", RUNNING))], odd.holdings())
    assert found.state == "sees"


def test_one_reason_for_all_spellings_of_a_metric(odd: Any) -> None:
    found = _one(
        odd, "rate(vllm:prefix_cache_hits_total[5m]) or rate(vllm:gpu_prefix_cache_hits_total[5m]) > 0"
    )
    assert [reason.about for reason in found.reasons] == ["vllm:prefix_cache_hits_total"]


def test_a_dashboards_all_is_no_condition_and_not_told(odd: Any) -> None:
    found = _one(odd, 'up{job="gone",instance=~".*"}', "panel")
    assert found.reasons[0].text == 'up has no job="gone", only "dcgm", "vllm"'
    assert _one(odd, 'up{cluster=~".*",job="vllm"}', "panel").state == "sees"


def test_needs_that_are_not_met_come_first(odd: Any) -> None:
    found = _one(odd, "absent(up)", needs=("llmdiag", "vllm|sglang"))
    assert found.state == "no_producer"
    assert [reason.text for reason in found.reasons] == ["no diag-exporter is scraped"]


def test_nothing_is_seen_outside_the_window(odd: Any) -> None:
    wanted = [Expectation("alert", "X", "x.yml", (f"{RUNNING} > 0",))]
    (found,) = sights(wanted, odd.holdings(odd.end - 86_400.0))
    assert found.state == "no_producer"


@pytest.fixture(scope="module")
def checked(odd: Any) -> Checked:
    return api.check(f"{odd.url}/graph?g0.expr=up", Window(odd.end - 3600.0, odd.end))


def test_everything_that_ships_is_checked_once(checked: Checked) -> None:
    assert [one.what for one in checked.sights] == list(expectations())
    assert [one.what.name for one in checked.of("alert")] == [alert.name for alert in ALERTS]
    assert len(checked.of("recording")) == sum(len(file.recordings) for file in FILES)
    assert {one.what.home.partition(" / ")[0] for one in checked.of("panel")}
    assert checked.producers == ("vllm", "dcgm", "process")


def test_the_missing_bucket_blinds_the_budget(checked: Checked) -> None:
    blind = {one.what.name: one for one in checked.of("alert", "blind")}
    reasons = {reason.kind: reason.text for reason in blind["LLMTTFTBudgetBurnFast"].reasons}
    assert 'le="5.0"' in reasons["bucket_missing"]


def test_recordings_see_through_old_names(checked: Checked) -> None:
    seen = {(one.what.name, one.what.producer) for one in checked.of("recording", "sees")}
    assert {("llm:kv_cache_usage_ratio", "vllm"), ("llm:waiting_requests", "vllm")} <= seen
    assert ("gpu:temperature_celsius", "dcgm") in seen
    assert all(one.state == "no_producer" for one in checked.of("recording") if one.what.producer == "sglang")


def test_what_is_loaded_is_told_by_file(checked: Checked) -> None:
    assert checked.loaded is not None
    files = {one.path: one for one in checked.loaded}
    assert files["engines/vllm.yml"].missing == ()
    assert len(files["engines/dcgm.yml"].missing) == files["engines/dcgm.yml"].total
    slo = next(file for file in FILES if file.path == "alerts/slo.yml")
    assert files["alerts/slo.yml"].missing == ()
    assert set(files["alerts/slo.yml"].other_release) == {alert.name for alert in slo.alerts}
    assert checked.labels_missing == ("grafana_url",)
    assert checked.fails("blind")
    assert checked.fails("unloaded")


def test_the_sections_say_it_in_words(checked: Checked) -> None:
    sections = {title: dict(rows) for title, rows in told.sections(checked)}
    assert any('le="5.0"' in text for text in sections["Blind alerts"].values())
    assert sections["Set-up"]["rules/engines/dcgm.yml"] == "not loaded"
    assert "from another release" in sections["Set-up"]["rules/alerts/slo.yml"]
    assert "rules/engines/node.yml" not in sections["Set-up"]
    assert "no external label grafana_url" in sections["Set-up"]
    assert "no node_exporter" in sections["Not for this store"]
    assert told.headline(checked).startswith(
        f"{len(checked.of('alert', 'sees'))} of {len(ALERTS)} alerts see"
    )


def test_the_data_keeps_what_is_unknown_apart(checked: Checked) -> None:
    data: Any = told.data(checked)
    assert data["schema"] == "diag.assets_check/1"
    assert data["external_labels_missing"] == ("grafana_url",)
    mute = Checked("http://x", 0.0, 60.0, (), (), None, None)
    assert told.data(mute)["files"] is None
    assert told.data(mute)["external_labels_missing"] is None
    rows = dict(dict(told.sections(mute))["Set-up"])
    assert rows == {
        "external labels": "this store does not show its configuration",
        "rules": "this store does not tell which rules it has loaded",
    }
    assert mute.fails("unloaded")
    assert not mute.fails("blind")


def test_a_rule_that_fails_is_told() -> None:
    alert = ALERTS[0]
    links = {"runbook_url": DEFAULT_LINKS.runbook(alert.runbook)}
    found = loaded([LoadedRule(alert.name, True, alert.expr, {}, links, "many-to-many matching")])
    home = next(one for one in found if one.failing)
    assert home.failing == ((alert.name, "many-to-many matching"),)
    assert home.other_release == ()


def test_an_hour_without_anything_names_a_time_that_has_something(odd: Any) -> None:
    checked = api.check(odd.url, Window(odd.end + 86_400.0 - 3600.0, odd.end + 86_400.0))
    assert checked.of("panel", "sees") == ()
    assert not checked.fails("blind")
    assert any("has data from" in note and "--from" in note for note in checked.notes)


def test_only_a_store_can_be_checked(odd: Any) -> None:
    window = Window(odd.end - 3600.0, odd.end)
    for ref in ("bundle.zip", "ftp://x", "prometheus:9090"):
        with pytest.raises(UsageError, match="no address of a store"):
            api.check(ref, window)
    with pytest.raises(NotPrometheus):
        api.check(f"{odd.url}/nowhere", window)
