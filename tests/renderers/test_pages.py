from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath

import pytest

from diag.errors import UsageError
from diag.model import State, Verdict
from diag.renderers import RENDERERS, RenderOptions, format_for, render

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("width", [100, 80])
def test_the_console_page_of_an_incident(incident: Verdict, golden: Golden, width: int) -> None:
    golden(f"incident_{width}.txt", render(incident, "console", RenderOptions(width=width)))


def test_the_console_page_of_a_healthy_window(healthy: Verdict, golden: Golden) -> None:
    golden("healthy.txt", render(healthy, "console"))


def test_the_console_page_of_an_unexplained_incident(unexplained: Verdict, golden: Golden) -> None:
    golden("unexplained.txt", render(unexplained, "console"))


def test_the_markdown_of_an_incident(incident: Verdict, golden: Golden) -> None:
    golden("incident.md", render(incident, "markdown"))


@pytest.mark.parametrize("name", ["incident", "healthy", "unexplained"])
@pytest.mark.parametrize("width", [40, 80, 100, 300])
def test_no_line_is_wider_than_asked_nor_than_100(
    request: pytest.FixtureRequest, name: str, width: int
) -> None:
    text = render(request.getfixturevalue(name), "console", RenderOptions(width=width))
    assert max(len(line) for line in text.splitlines()) <= min(width, 100)
    assert all(line == line.rstrip() for line in text.splitlines())


def test_the_first_line_is_the_sentence(incident: Verdict) -> None:
    assert render(incident).startswith("Old sessions wait minutes for a first token")


def test_without_colour_there_is_no_escape_code(incident: Verdict) -> None:
    assert "\x1b" not in render(incident)
    assert "\x1b[" in render(incident, "console", RenderOptions(color=True))


def test_safe_actions_come_first(incident: Verdict) -> None:
    for format in ("console", "markdown"):
        text = render(incident, format)
        assert text.index("start a new chat") < text.index("with care: cap")


def test_a_ruled_out_cause_is_told_with_its_heaviest_number(incident: Verdict) -> None:
    text = render(incident)
    assert "arrivals are flat (1.51/s → 1.49/s)" in text
    assert "waiting stays at 2" not in text


def test_hypotheses_that_lack_the_same_exporter_share_a_line(incident: Verdict) -> None:
    text = render(incident, "markdown")
    (line,) = [line for line in text.splitlines() if "**thermal_throttle" in line]
    assert "power_cap, noisy_neighbour" in line
    assert "no GPU exporter" in line


@pytest.mark.parametrize("format", ["console", "markdown"])
def test_unchecked_is_never_called_ok(healthy: Verdict, format: str) -> None:
    text = render(healthy, format)
    assert text.lstrip("# ").startswith("No incident in this window")
    assert " ok" not in text.lower()
    assert "risks" in text.lower()
    assert text.lower().index("could not be checked") < text.index("power_cap")


def test_the_leads_are_shown_when_nothing_explains_it(unexplained: Verdict) -> None:
    text = render(unexplained)
    assert "engine steps fell (12/s → 3/s)" in text
    assert "take a trace" in text
    assert "unknown → 9 s" in text


def test_top_limits_the_causes_and_names_the_rest(incident: Verdict) -> None:
    text = render(incident, "console", RenderOptions(top=1))
    assert "title of prefix_cache_off" not in text
    assert "prefix_cache_off (supported), kv_cache_exhaustion (undecided)" in text


def test_what_is_merely_not_excluded_is_named_but_not_shouted(incident: Verdict, healthy: Verdict) -> None:
    faint = replace(
        incident.assessments[2], confidence=0.04, title="faint suspicion", next_check="look for it"
    )
    for verdict in (incident, healthy):
        text = render(replace(verdict, assessments=(*verdict.assessments[:2], faint)))
        assert "faint suspicion" not in text
        assert text.index("NOT EXCLUDED") < text.index("kv_cache_exhaustion (undecided)")


def test_unknown_is_no_cause_among_those_ruled_out(incident: Verdict) -> None:
    beside = replace(incident.assessments[3], id="unknown", title="None of the known causes")
    assert "None of the known" not in render(replace(incident, assessments=(*incident.assessments, beside)))


def test_the_heaviest_contrary_observation_has_a_seat(incident: Verdict) -> None:
    first = incident.assessments[0]
    more = tuple(replace(first.evidence[1], text=f"sign number {n}", weight=3.0 + n) for n in range(9))
    crowded = replace(incident, assessments=(replace(first, evidence=(*first.evidence, *more)),))
    text = render(crowded)
    assert "request rate rose by 4 %" in text
    assert "sign number 8" in text
    assert "sign number 2" not in text


def test_a_half_true_prediction_that_weighs_against_is_shown_so(incident: Verdict) -> None:
    first = incident.assessments[0]
    half = replace(first.evidence[1], text="only half of it", weight=-0.9)
    text = render(replace(incident, assessments=(replace(first, evidence=(half,)),)), "markdown")
    assert "- **against**: only half of it" in text


def test_strangers_text_can_neither_colour_a_terminal_nor_build_a_table(incident: Verdict) -> None:
    first = replace(incident.assessments[0], title="[red]x[/red] \x1b]0;owned\x07 | <b> `y`")
    hostile = replace(incident, assessments=(first,))
    console = render(hostile, "console")
    assert "\x1b" not in console
    assert "[red]x[/red]" in console
    assert r"\<b\> \`y\`" in render(hostile, "markdown")


def test_every_state_has_its_place(incident: Verdict) -> None:
    text = render(incident, "markdown")
    places = {
        State.SUPPORTED: "## Leading cause",
        State.UNDECIDED: "## Also stands",
        State.RULED_OUT: "## Ruled out",
        State.NOT_ASSESSABLE: "## Could not be checked",
    }
    for one in incident.assessments[2:]:
        section = text.index(places[one.state])
        assert section < text.index(one.id, section)


def test_unknown_outputs_are_wrong_usage(incident: Verdict) -> None:
    with pytest.raises(UsageError, match="console, json, markdown"):
        render(incident, "yaml")


def test_endings_name_outputs() -> None:
    endings = {suffix: name for name, entry in RENDERERS.items() for suffix in entry.suffixes}
    assert {suffix: format_for(PurePath(f"a{suffix}")) for suffix in endings} == endings
    assert format_for(PurePath("a.log")) is None
