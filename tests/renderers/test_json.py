from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from diag.errors import DiagError
from diag.model import Verdict
from diag.renderers import RenderOptions, load, render

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")


@pytest.fixture(params=["incident", "healthy", "unexplained"])
def verdict(request: pytest.FixtureRequest) -> Verdict:
    found: Verdict = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    text = (files("diag.renderers") / "verdict.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def test_the_json_keeps_the_shipped_schema(verdict: Verdict, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(render(verdict, "json")))


def test_the_schema_refuses_other_shapes(incident: Verdict, schema: dict[str, Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    sound = json.loads(render(incident, "json"))
    spoilers: tuple[Callable[[Any], object], ...] = (
        lambda it: it.pop("windows"),
        lambda it: it.update(schema="diag.verdict/2"),
        lambda it: it["assessments"][0].update(state="ok"),
        lambda it: it["assessments"][0]["evidence"][0].update(cue="x"),
        lambda it: it["windows"].update(baseline=["2026-11-29T20:56:14+01:00", "2026-11-29T20:57:22Z"]),
    )
    for spoil in spoilers:
        broken = json.loads(json.dumps(sound))
        spoil(broken)
        assert not validator.is_valid(broken)


def test_keys_stand_in_the_order_of_the_contract(incident: Verdict) -> None:
    data = json.loads(render(incident, "json"))
    assert list(data) == [
        "schema", "version", "generated_at", "source", "windows", "summary", "symptoms", "leading",
        "assessments", "timeline", "leads", "coverage", "notes",
    ]  # fmt: skip
    assert list(data["assessments"][0]) == [
        "id", "title", "state", "confidence", "rank", "scope", "onset", "explained_share", "explained_by",
        "chain", "evidence", "missing", "mitigations", "next_check", "runbook",
    ]  # fmt: skip
    assert list(data["assessments"][0]["evidence"][0]) == [
        "signal", "stance", "weight", "before", "during", "unit", "onset", "text",
    ]  # fmt: skip
    assert list(data["symptoms"][0]) == ["signal", "scope", "before", "during", "unit", "onset"]


def test_unknown_is_null_and_times_end_in_z(unexplained: Verdict) -> None:
    text = render(unexplained, "json")
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    assert data["windows"] == {"baseline": None, "incident": ["2026-11-29T20:57:22Z", "2026-11-29T20:58:22Z"]}
    assert data["symptoms"][0]["before"] is None
    assert data["symptoms"][0]["onset"] is None
    assert TIME.fullmatch(data["generated_at"])


def test_the_top_option_never_shortens_the_json(incident: Verdict) -> None:
    assert render(incident, "json", RenderOptions(top=1)) == render(incident, "json")
    assert len(json.loads(render(incident, "json"))["assessments"]) == len(incident.assessments)


@pytest.mark.parametrize("format", ["console", "markdown", "json"])
def test_a_saved_verdict_reads_like_the_fresh_one(verdict: Verdict, format: str) -> None:
    saved = load(render(verdict, "json"))
    assert render(saved, format) == render(verdict, format)


def test_saved_fractions_of_a_second_survive(incident: Verdict) -> None:
    assert load(render(incident, "json")).generated_at == incident.generated_at
    assert load(render(incident, "json")).assessments[0].chain == incident.assessments[0].chain


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a saved verdict"),
        ("[1, 2]", "not a saved verdict"),
        ("{}", "not a saved verdict"),
        ('{"schema": "diag.bundle/1"}', "diag.bundle/1"),
        ('{"schema": "diag.verdict/2"}', "upgrade"),
        ('{"schema": "diag.verdict/1"}', "not a saved verdict"),
        (b"\xff\xfe", "not a saved verdict"),
    ],
)
def test_what_is_no_verdict_is_refused_in_one_line(text: str | bytes, says: str) -> None:
    with pytest.raises(DiagError, match=says) as caught:
        load(text)
    assert "\n" not in str(caught.value)


def test_a_time_without_zone_is_refused(healthy: Verdict) -> None:
    text = render(healthy, "json").replace("2026-11-29T20:57:22Z", "2026-11-29T20:57:22")
    with pytest.raises(DiagError, match="no zone"):
        load(text)


def test_infinite_weights_become_null(incident: Verdict) -> None:
    first = incident.assessments[0]
    endless = replace(first, evidence=(replace(first.evidence[0], weight=float("-inf")),))
    data = json.loads(render(replace(incident, assessments=(endless,)), "json"))
    assert data["assessments"][0]["evidence"][0]["weight"] is None
