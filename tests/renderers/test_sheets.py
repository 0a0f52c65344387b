from __future__ import annotations

import json

import pytest

from diag.model import Card, Mitigation
from diag.renderers import RenderOptions
from diag.renderers.cards import render_card, render_list
from diag.renderers.checked import Assessable, Checked, Lacking, Present, render_check

CARD = Card(
    id="load_burst",
    title="More work than capacity",
    mechanism="The queue grows because more arrives than can be served.",
    signs=("arrivals up",),
    rules_out=("arrivals flat",),
    look_alikes={"tenant_dominance": "one tenant only"},
    mitigations=(Mitigation("restart", False), Mitigation("shed load", True)),
    next_check="count arrivals by tenant",
    chain=("first_tokens_per_second", "waiting_requests"),
    leads_to=("kv_cache_exhaustion",),
)
CHECKED = Checked(
    sources=("bundle x",),
    window="2026-11-29 20:00:00 to 21:00:00 UTC (1 h)",
    present=(Present("waiting_requests", "vllm", 2), Present("target_up", "process", 3)),
    lacking=(Lacking(tuple(f"gpu_{n}" for n in range(6)), "run dcgm-exporter"),),
    assessable=(
        Assessable("load_burst", True, ()),
        Assessable("power_cap", False, ("run dcgm-exporter",)),
        Assessable("thermal_throttle", False, ("run dcgm-exporter",)),
    ),
    joins=("a:8000: no node found",),
    requests=None,
    notes=(),
)


@pytest.mark.parametrize("format", ["console", "markdown"])
def test_a_card_is_told_in_full_safe_things_first(format: str) -> None:
    text = render_card(CARD, format, RenderOptions())
    for part in ("arrivals up", "arrivals flat", "one tenant only", "count arrivals", "kv_cache_exhaustion"):
        assert part in text
    assert text.index("shed load") < text.index("restart")
    assert "runbooks/load_burst.md" in text


def test_a_card_as_json_is_the_card() -> None:
    data = json.loads(render_card(CARD, "json", RenderOptions()))
    assert data["look_alikes"] == {"tenant_dominance": "one tenant only"}
    assert data["mitigations"][1] == {"text": "shed load", "safe": True}


def test_the_list_has_a_line_a_card_and_keeps_the_width() -> None:
    lines = render_list([CARD, CARD], "console", RenderOptions(width=32)).splitlines()
    assert len(lines) == 2
    assert all(len(line) <= 32 for line in lines)
    assert json.loads(render_list([CARD], "json", RenderOptions())) == [
        {"id": "load_burst", "title": CARD.title}
    ]


@pytest.mark.parametrize("format", ["console", "markdown"])
def test_coverage_names_what_is_missing_and_how_to_get_it(format: str) -> None:
    text = render_check(CHECKED, format, RenderOptions())
    assert "2 signals seen; 1 of 3 hypotheses can be assessed" in text
    assert "waiting_requests ×2" in text
    assert "gpu_3 and 2" in text
    assert "gpu_4" not in text
    assert "power_cap, thermal_throttle" in text
    assert "--requests FILE" in text


def test_coverage_as_json_lists_every_signal() -> None:
    data = json.loads(render_check(CHECKED, "json", RenderOptions()))
    assert data["schema"] == "diag.check/1"
    assert len(data["lacking"][0]["signals"]) == 6
    assert data["assessable"][0] == {"id": "load_burst", "possible": True, "needs": []}
    assert data["requests"] is None
