"""The one door to grafana-foundation-sdk: turns a board into the JSON that Grafana imports.

The library is called alpha and checks nothing it is given, so it is used here alone, what it leaves out or
adds too much is put right at the end, and the result is held to Grafana's own schema in the tests.
"""

from __future__ import annotations

import json
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as words
from grafana_foundation_sdk.models import dashboard as model

from dashboards.src.grid import placed
from dashboards.src.leads import (
    SERVICE_DEFAULT,
    SERVICE_VARIABLE,
    board_url,
    runbook_url,
    triage_url,
)
from dashboards.src.model import Board, Panel, Query, Row
from dashboards.src.variables import VARIABLES

__all__ = ["TAG", "dashboard_json"]

TAG = "llm-diag"
"""What the menu of boards lists."""

_SOURCE = words.DataSourceRef(type_val="prometheus", uid="${datasource}")
_SEVERITIES = {"critical": "red", "warning": "orange", "info": "blue", "none": "text"}
_ALL = model.VariableOption(selected=True, text="All", value="$__all")
_BUILDERS: dict[str, Any] = {
    "timeseries": timeseries.Panel,
    "stat": stat.Panel,
    "bargauge": bargauge.Panel,
    "state-timeline": statetimeline.Panel,
}


def dashboard_json(board: Board) -> dict[str, Any]:
    """``board`` as Grafana's dashboard model, ready for ``json.dumps``."""
    made = (
        build.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .refresh("1m")
        .time("now-3h", "now")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .annotations([_built_in(), _alerts(), _findings()])
        .links([_menu(), _link("Triage this window", triage_url())])
        .variables(_variables())
    )
    plain: dict[str, Any] = json.loads(json.dumps(made.build(), cls=JSONEncoder))
    plain["panels"] = _panels(board)
    return _put_right(plain)


def _panels(board: Board) -> list[dict[str, Any]]:
    found = []
    for number, (item, place) in enumerate(placed(board.rows), start=1):
        built = _row(item) if isinstance(item, Row) else _panel(item)
        plain: dict[str, Any] = json.loads(json.dumps(built, cls=JSONEncoder))
        plain["id"] = number
        plain["gridPos"] = {"x": place.x, "y": place.y, "w": place.width, "h": place.height}
        if isinstance(item, Panel):
            _fill_in(plain, item)
        found.append(plain)
    return found


def _row(row: Row) -> model.RowPanel:
    return build.Row(row.heading).collapsed(False).build()


def _panel(panel: Panel) -> model.Panel:
    made = _BUILDERS[panel.kind]()
    made.title(panel.title).description(panel.description).unit(panel.unit).datasource(_SOURCE)
    made.links([_link(f"Runbook: {name}", runbook_url(name)) for name in panel.runbooks])
    made.thresholds(_thresholds(panel)).no_value("no data")
    for place, query in enumerate(panel.queries):
        made.with_target(_target(query, chr(ord("A") + place), panel.kind))
    if panel.minimum is not None:
        made.min(panel.minimum)
    if panel.maximum is not None:
        made.max(panel.maximum)
    if panel.states:
        made.mappings([_mapping(panel)])
    _style(made, panel)
    built: model.Panel = made.build()
    return built


def _style(made: Any, panel: Panel) -> None:
    """What only one kind of panel knows."""
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    if panel.kind == "stat":
        made.reduce_options(last).graph_mode(words.BigValueGraphMode.AREA)
        made.color_mode(words.BigValueColorMode.VALUE).text_mode(words.BigValueTextMode.VALUE)
        made.color_scheme(build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        return
    if panel.kind == "bargauge":
        made.reduce_options(last).orientation(words.VizOrientation.HORIZONTAL)
        made.display_mode(words.BarGaugeDisplayMode.BASIC).show_unfilled(True)
        made.color_scheme(build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        return
    made.legend(_legend()).tooltip(_tooltip())
    if panel.kind == "state-timeline":
        made.show_value(words.VisibilityMode.NEVER).merge_values(True).row_height(0.8)
        made.color_scheme(build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        return
    shown = words.GraphThresholdsStyleMode.DASHED if panel.limits else words.GraphThresholdsStyleMode.OFF
    made.color_scheme(build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
    made.thresholds_style(common.GraphThresholdsStyleConfig().mode(shown))
    made.line_width(1).fill_opacity(40 if panel.stacked else 8).span_nulls(False)
    made.show_points(words.VisibilityMode.NEVER)
    if panel.dashed:
        style = model.DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [6, 4]})
        made.override_by_regexp(f"/ {panel.dashed}$/", [style])
    if panel.stacked:
        made.stacking(common.StackingConfig().mode(words.StackingMode.NORMAL).group("A"))


def _legend() -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(True)
    return legend.display_mode(words.LegendDisplayMode.LIST).placement(words.LegendPlacement.BOTTOM)


def _tooltip() -> common.VizTooltipOptions:
    tooltip = common.VizTooltipOptions().mode(words.TooltipDisplayMode.MULTI)
    return tooltip.sort(words.SortOrder.DESCENDING)


def _target(query: Query, ref: str, kind: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(query.expr).ref_id(ref).legend_format(query.legend)
    made = made.instant() if kind == "bargauge" else made.range()
    if query.min_step:
        made = made.interval(query.min_step)
    return made.datasource(_SOURCE)


def _thresholds(panel: Panel) -> build.ThresholdsConfig:
    """The alerts' numbers; the first step is always there and has none, so Grafana adds no 80."""
    steps = [model.Threshold(color="green")]
    if panel.states:
        steps = [model.Threshold(color=panel.states[0].colour)]
        steps += [model.Threshold(value=one.value, color=one.colour) for one in panel.states[1:]]
    for limit in sorted(panel.limits, key=lambda one: one.value):
        steps.append(model.Threshold(value=limit.value, color=_SEVERITIES[limit.severity]))
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


def _mapping(panel: Panel) -> model.ValueMap:
    results = {
        f"{state.value:g}": model.ValueMappingResult(text=state.text, color=state.colour, index=place)
        for place, state in enumerate(panel.states)
    }
    return model.ValueMap(options=results)


def _link(title: str, url: str) -> build.DashboardLink:
    return build.DashboardLink(title).type(model.DashboardLinkType.LINK).url(url).target_blank(True)


def _menu() -> build.DashboardLink:
    made = build.DashboardLink("llm-diag").type(model.DashboardLinkType.DASHBOARDS).tags([TAG])
    return made.as_dropdown(True).include_vars(True).keep_time(True)


def _built_in() -> build.AnnotationQuery:
    own = words.DataSourceRef(type_val="grafana", uid="-- Grafana --")
    made = build.AnnotationQuery().name("Annotations & Alerts").datasource(own).built_in(1)
    return made.enable(True).hide(True).icon_color("rgba(0, 211, 255, 1)").type("dashboard")


def _alerts() -> build.AnnotationQuery:
    made = build.AnnotationQuery().name("Firing alerts").datasource(_SOURCE).enable(True).icon_color("red")
    made = made.expr('ALERTS{alertstate="firing",service="llm",cluster=~"$cluster"}')
    return made.title_format("{{alertname}}").text_format("{{severity}} {{instance}}").tag_keys("component")


def _findings() -> build.AnnotationQuery:
    made = build.AnnotationQuery().name("Triage").datasource(_SOURCE).enable(True).icon_color("purple")
    made = made.expr('llmdiag_triage_finding{cluster=~"$cluster"} > 0')
    return made.title_format("triage: {{verdict}}").text_format("{{instance}}").tag_keys("verdict")


def _variables() -> list[Any]:
    source = build.DatasourceVariable("datasource").label("data source").type("prometheus")
    asked = [
        build.QueryVariable(one.name)
        .label(one.label)
        .description(one.description)
        .datasource(_SOURCE)
        .query(one.query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(_ALL)
        for one in VARIABLES
    ]
    service = build.TextBoxVariable(SERVICE_VARIABLE).label("diag serve").default_value(SERVICE_DEFAULT)
    service = service.description("Where `diag serve` answers: runbooks and triage open there.")
    return [
        source,
        *asked,
        service.current(model.VariableOption(text=SERVICE_DEFAULT, value=SERVICE_DEFAULT)),
    ]


def _fill_in(plain: dict[str, Any], panel: Panel) -> None:
    """Data links have a shape of their own, which the library's builder does not make."""
    if panel.drill:
        uid = f"llmdiag-{panel.drill}"
        plain["fieldConfig"]["defaults"]["links"] = [
            {"title": _drill_title(panel),
             "url": board_url(uid, panel.variable, panel.label), "targetBlank": False}
        ]  # fmt: skip


def _drill_title(panel: Panel) -> str:
    what = {"instance": " of this engine", "host": " of this host", "model": " of this model"}
    return f"Open llmdiag-{panel.drill}{what.get(panel.variable, '')}"


def _put_right(plain: dict[str, Any]) -> dict[str, Any]:
    """Undo defaults of the library: fields of another kind of variable, and links and marks hidden in a
    menu of controls."""
    for variable in plain["templating"]["list"]:
        if variable["type"] != "interval":
            for key in ("auto", "auto_min", "auto_count"):
                variable.pop(key, None)
    for shown in (*plain["annotations"]["list"], *plain["links"]):
        shown.pop("placement", None)
    for panel in plain["panels"]:
        for link in panel.get("links", ()):
            link.pop("placement", None)
    return plain
