"""The gallery: fresh text, small pictures, and a drawing that shows what it is given."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dashboards.src.boards import BOARDS
from dashboards.src.grid import placed
from dashboards.src.model import Panel, Row
from dashboards.src.pictures.asking import Line
from dashboards.src.pictures.drawing import Shot, painted
from dashboards.src.pictures.gallery import SHOWN, page
from dashboards.src.pictures.sessions import session_series
from dashboards.src.pictures.stages import STAGES
from dashboards.src.pictures.units import shown, ticks
from diag.signals.frame import RawSeries
from diag.simulate.parts import Bundle

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_gallerys_blocks_are_fresh() -> None:
    text = (DOCS / "dashboards.md").read_text(encoding="utf-8")
    assert page(text) == text
    with pytest.raises(ValueError, match="no block marked for the absences"):
        page(text.replace("absences: begin", "absence: begin"))


def test_each_board_has_a_small_picture_of_its_own_shape() -> None:
    assert (
        {path.stem for path in (DOCS / "dashboards").glob("*.png")} == set(SHOWN) == {b.name for b in BOARDS}
    )
    assert set(SHOWN.values()) <= set(STAGES)
    for board in BOARDS:
        path = DOCS / "dashboards" / f"{board.name}.png"
        assert path.stat().st_size <= 250_000
        rows = max(place.y + place.height for _, place in placed(board.rows))
        width, height = Image.open(path).size
        assert abs(width - 24 * 54) <= 1
        assert abs(height - (22 * rows + 46)) <= 1, f"{board.uid} changed: run `make pictures`"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.004, "s", "4 ms"),
        (90.0, "s", "90 s"),
        (600.0, "s", "10 min"),
        (14_400.0, "s", "4 h"),
        (0.25, "percentunit", "25 %"),
        (2.0**31, "bytes", "2 GiB"),
        (1500.0, "count:tok/s", "1.5K tok/s"),
        (41.0, "celsius", "41 °C"),
        (0.0, "s", "0 s"),
    ],
)
def test_numbers_read_as_in_grafana(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def test_ticks_are_round_and_few() -> None:
    assert ticks(-0.02, 1.02, "percentunit") == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert ticks(0.0, 1000.0, "s") == [0.0, 300.0, 600.0, 900.0]
    assert ticks(0.0, 2.0**33, "bytes") == [2.0**31 * place for place in range(5)]


def _board(**panel: Any) -> dict[str, Any]:
    steps = [{"color": "green", "value": None}, {"color": "red", "value": 8.0}]
    whole = {
        "id": 1,
        "type": "timeseries",
        "title": "One",
        "gridPos": {"x": 0, "y": 0, "w": 24, "h": 8},
        "fieldConfig": {
            "defaults": {"unit": "short", "min": 0, "custom": {}, "thresholds": {"steps": steps}}
        },
    }
    return {"title": "Board", "panels": [{**whole, **panel}]}


def _picture(board: dict[str, Any], values: list[float]) -> np.ndarray[Any, Any]:
    times = np.array([60.0 * place for place in range(len(values))], dtype=np.float64)
    line = Line({}, "one", times, np.array(values, dtype=np.float64))
    png = painted(Shot(board, {1: [line]}, 0.0, float(times[-1]), None, "caption"))
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def _near(picture: np.ndarray[Any, Any], colour: tuple[int, int, int]) -> int:
    return int((np.abs(picture - np.array(colour)).max(axis=2) < 24).sum())


def test_a_curve_and_its_threshold_are_drawn_and_no_data_is_said() -> None:
    green, red = (86, 166, 75), (224, 47, 68)
    drawn = _picture(_board(), [1.0, 5.0, 10.0, 3.0])
    assert _near(drawn, green) > 300
    assert _near(drawn, red) > 300
    empty = _picture(_board(), [np.nan] * 4)
    assert _near(empty, green) == _near(empty, red) == 0


def test_a_state_timeline_takes_its_colours_from_the_mapping() -> None:
    options = {
        "0": {"text": "down", "color": "red", "index": 0},
        "1": {"text": "up", "color": "green", "index": 1},
    }
    board = _board(type="state-timeline")
    board["panels"][0]["fieldConfig"]["defaults"]["mappings"] = [{"options": options}]
    drawn = _picture(board, [1.0, 1.0, 1.0, 0.0, 0.0])
    assert _near(drawn, (86, 166, 75)) > 2 * _near(drawn, (224, 47, 68)) > 1000


def test_panels_flow_over_the_grid_and_none_is_wider_than_it() -> None:
    wide, small = (
        Panel("p", "d", "s", (), width=width, height=height) for width, height in ((16, 8), (12, 6))
    )
    places = [place for _, place in placed([Row("r", (), (wide, small, small))])]
    assert [(place.x, place.y, place.width) for place in places] == [
        (0, 0, 24),
        (0, 1, 16),
        (0, 9, 12),
        (12, 9, 12),
    ]
    with pytest.raises(ValueError, match="25 columns wide"):
        list(placed([Row("r", (), (Panel("p", "d", "s", (), width=25),))]))


def test_sessions_are_what_the_exporters_table_makes_of_the_records() -> None:
    meta = {"window": {"from": 1000.0, "to": 1060.0}, "step_seconds": 15}
    record = {"ts": 1001.0, "session": "a", "tenant": "t", "prompt_tokens": 100, "output_tokens": 10,
              "duration_seconds": 4.0, "status": "ok"}  # fmt: skip
    engine = RawSeries(
        {"__name__": "x", "model_name": "m", "job": "vllm", "instance": "i"}, np.array([1000.0]), np.ones(1)
    )
    later = {**record, "ts": 1020.0, "prompt_tokens": 160}
    bundle = Bundle(meta, {"engine": (engine,)}, (record, later, {"not": "ours"}))
    series = {tuple(sorted(one.labels.items())): one for one in session_series(bundle)}
    names = {dict(key)["__name__"]: one for key, one in series.items()}
    assert names["llmdiag_active_sessions"].values.tolist() == [1.0, 1.0, 1.0, 1.0]
    assert names["llmdiag_active_sessions"].labels["model"] == "m"
    assert names["llmdiag_prompt_repeated_tokens_total"].values.tolist()[-1] == 100.0
    assert session_series(Bundle(meta, {"engine": (engine,)}, ({"msec": "1"},))) == []
