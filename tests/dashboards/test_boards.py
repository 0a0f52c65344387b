"""The committed dashboards: fresh, of Grafana's schema, of our conventions, complete."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.src.__main__ import stale
from dashboards.src.boards import BOARDS
from dashboards.src.limits import line
from dashboards.src.model import Panel
from diag.assets.rules.catalogue import ALERTS, alert
from diag.assets.rules.thresholds import KV_FULL, TTFT_BOUND
from diag.assets.symptoms import SYMPTOMS
from diag.hypotheses import CARDS
from tests.dashboards.lint import complaints

CHECKOUT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((Path(__file__).parent / "schema" / "grafana.json").read_text(encoding="utf-8"))
# The Prometheus data source reads these from an annotation; the schema of the model leaves them out.
PROMETHEUS_ANNOTATION = {"expr", "titleFormat", "textFormat", "tagKeys"}
Model = dict[str, Any]


def _refusals(root: str, value: Any) -> list[str]:
    whole = {"$ref": SCHEMA["roots"][root], "definitions": SCHEMA["definitions"]}
    found = jsonschema.Draft7Validator(whole).iter_errors(value)
    return [f"{list(error.absolute_path)}: {error.message[:200]}" for error in found]


def _as_schema_knows(board: Model) -> Model:
    known = copy.deepcopy(board)
    for one in known["annotations"]["list"]:
        for key in PROMETHEUS_ANNOTATION & one.keys():
            del one[key]
    return known


def _of_schema(board: Model) -> list[str]:
    found = _refusals("dashboard", _as_schema_knows(board))
    for panel in board["panels"]:
        kind = panel["type"].replace("-", "")
        parts = {"options": panel.get("options")}
        if panel["type"] != "row":
            parts["field"] = panel["fieldConfig"]["defaults"].get("custom")
        for part, value in parts.items():
            if f"{kind}_{part}" in SCHEMA["roots"] and value is not None:
                found += _refusals(f"{kind}_{part}", value)
    return found


def test_the_seven_are_there_by_uid_and_fresh(committed: dict[str, Model]) -> None:
    names = ("cache", "engine", "fabric", "gpu", "incident", "sessions", "tenants")
    assert sorted(committed) == [f"llmdiag-{name}" for name in names]
    assert all(board["uid"] == uid for uid, board in committed.items())
    assert stale() == []


def test_a_changed_missing_or_left_over_file_is_stale(tmp_path: Path) -> None:
    for path in (CHECKOUT / "dashboards").glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "llmdiag-gpu.json").unlink()
    (tmp_path / "llmdiag-old.json").write_text("{}")
    changed = tmp_path / "llmdiag-cache.json"
    changed.write_text(changed.read_text().replace("KV pool", "KV heap"))
    names = ["llmdiag-cache.json", "llmdiag-gpu.json", "llmdiag-old.json"]
    assert stale(tmp_path) == names
    assert stale(tmp_path, write=True) == names
    assert stale(tmp_path) == []


def test_they_are_of_grafanas_own_schema(committed: dict[str, Model]) -> None:
    assert {uid: _of_schema(board) for uid, board in committed.items()} == {uid: [] for uid in committed}


def _set(path: str, value: Any) -> Callable[[Model], None]:
    *way, last = path.split(".")

    def change(board: Model) -> None:
        at: Any = board
        for step in way:
            at = at[int(step)] if step.isdigit() else at[step]
        at[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("schemaVersion", "42"),
        _set("graphTooltipp", 1),
        _set("panels.1.datasource", "prometheus"),
        _set("panels.1.gridPos", {"x": 0}),
        _set("panels.1.fieldConfig.defaults.custom.lineWidht", 1),
        _set("panels.1.options.legend.placement", "left"),
        _set("panels.1.fieldConfig.defaults.thresholds.mode", "relative"),
        _set("templating.list.1.hide", "never"),
    ],
)
def test_the_schema_refuses_what_is_wrong(
    committed: dict[str, Model], change: Callable[[Model], None]
) -> None:
    board = copy.deepcopy(committed["llmdiag-engine"])
    change(board)
    assert _of_schema(board)


def test_the_vendors_library_reads_them_without_loss(committed: dict[str, Model]) -> None:
    # Without this the library drops what only a kind of panel knows.
    plugins.register_default_plugins()
    for uid, board in committed.items():
        again = json.loads(json.dumps(Dashboard.from_json(copy.deepcopy(board)), cls=JSONEncoder))
        assert {panel["title"] for panel in again["panels"]} == {
            panel["title"] for panel in board["panels"]
        }, uid
        for before, after in zip(copy.deepcopy(board["panels"]), again["panels"], strict=True):
            for one in (before, after):
                # It gives data links a dashboard link's shape; ours is the one Grafana writes.
                one.get("fieldConfig", {}).get("defaults", {}).pop("links", None)
            for key in ("gridPos", "targets", "fieldConfig", "id", "type"):
                assert before.get(key) == after.get(key), (uid, before["title"], key)


def test_they_keep_the_conventions(committed: dict[str, Model]) -> None:
    uids = frozenset(committed)
    assert [text for board in committed.values() for text in complaints(board, uids)] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("editable", True), "edited"),
        (_set("graphTooltip", 0), "crosshair"),
        (_set("id", 7), "numeric id"),
        (_set("links", []), "menu"),
        (_set("annotations.list", []), "no marks from ALERTS"),
        (_set("templating.list", []), "variables are"),
        (_set("panels.1.title", ""), "no title"),
        (_set("panels.1.description", ""), "no description"),
        (_set("panels.1.fieldConfig.defaults.unit", "requests"), "unit"),
        (_set("panels.1.datasource", {"type": "prometheus", "uid": "P1"}), "fixed"),
        (_set("panels.1.links", []), "no runbook"),
        (_set("panels.1.fieldConfig.defaults.thresholds.steps", [{"color": "red", "value": 80}]), "of 80"),
        (_set("panels.1.fieldConfig.defaults.custom.thresholdsStyle.mode", "off"), "disagree"),
        (_set("panels.1.fieldConfig.defaults.links.0.url", "/d/gone?x"), "nowhere"),
        (_set("panels.1.targets.0.expr", 'rate(x{cluster=~"$cluster"}[5m])'), "fixed window"),
        (_set("panels.1.targets.0.expr", 'rate(x{cluster=~"$cluster"}[$__interval])'), "shorter"),
        (_set("panels.1.targets.0.expr", 'x{cluster=~"$cluster",a="$pod"}'), "unknown variables"),
        (_set("panels.1.targets.0.expr", "x"), "mixes clusters"),
        (_set("panels.1.targets.0.refId", "B"), "queries are called"),
        (_set("panels.1.gridPos.x", 20), "leaves the grid"),
        (_set("panels.2.gridPos.x", 0), "overlap"),
        (_set("panels.2.id", 1), "ids repeat"),
    ],
)
def test_the_lint_finds_what_it_is_for(
    committed: dict[str, Model], change: Callable[[Model], None], said: str
) -> None:
    board = copy.deepcopy(committed["llmdiag-engine"])
    change(board)
    assert any(said in text for text in complaints(board, frozenset(committed)))


def _panels() -> list[Panel]:
    return [panel for board in BOARDS for panel in board.panels]


def test_each_alert_is_on_a_panel_and_each_panels_alert_is_there() -> None:
    shown = {name for panel in _panels() for name in panel.alerts}
    shown |= {limit.alert for panel in _panels() for limit in panel.limits}
    assert shown == {entry.name for entry in ALERTS}


def test_each_alerts_dashboard_shows_it() -> None:
    for entry in ALERTS:
        board = next(board for board in BOARDS if board.name == entry.dashboard)
        here = {name for panel in board.panels for name in panel.alerts}
        here |= {limit.alert for panel in board.panels for limit in panel.limits}
        assert entry.name in here, f"{entry.name} leads to {board.uid}, which does not show it"


def test_lines_stand_at_the_alerts_own_numbers(committed: dict[str, Model]) -> None:
    for board in BOARDS:
        drawn = {
            panel["title"]: {
                step.get("value") for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            }
            for panel in committed[board.uid]["panels"]
            if panel["type"] != "row"
        }
        for panel in board.panels:
            for limit in panel.limits:
                assert limit.value in {threshold.value for threshold in alert(limit.alert).thresholds}
                assert limit.value in drawn[panel.title], (board.uid, panel.title)


def test_a_line_is_refused_at_a_number_its_alert_does_not_use() -> None:
    assert line("LLMKVCacheSaturated", KV_FULL).value == KV_FULL.value
    with pytest.raises(ValueError, match="does not compare"):
        line("LLMKVCacheSaturated", TTFT_BOUND)


def test_each_hypothesis_has_a_row_and_each_runbook_linked_exists() -> None:
    rows = {name for board in BOARDS for row in board.rows for name in row.hypotheses}
    assert rows == set(CARDS)
    pages = {path.stem for path in (CHECKOUT / "runbooks").glob("*.md")}
    for panel in _panels():
        assert set(panel.runbooks) <= pages, panel.title
        assert set(panel.runbooks) <= set(CARDS) | set(SYMPTOMS), panel.title


def test_each_row_leads_to_the_runbooks_of_its_hypotheses() -> None:
    for board in BOARDS:
        for row in board.rows:
            linked = {name for panel in row.panels for name in panel.runbooks}
            assert set(row.hypotheses) - {"unknown"} <= linked, (board.uid, row.title)


def test_one_module_alone_knows_the_vendors_library() -> None:
    knowing = set()
    for path in (CHECKOUT / "dashboards" / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            if any(name.split(".")[0] == "grafana_foundation_sdk" for name in names):
                knowing.add(path.name)
    assert knowing == {"grafana.py"}
