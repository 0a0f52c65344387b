"""Commands against live servers: a real Prometheus, and bare pages of an engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Diag = Callable[..., Any]


@pytest.fixture
def asked(incidents: Path) -> list[str]:
    """The window of the reference recording as options."""
    window = json.loads((incidents / "context_growth_reference" / "bundle.json").read_text())["window"]
    return ["--from", str(window["from"]), "--to", str(window["to"])]


def _verdict(diag: Diag, *arguments: str) -> dict[str, Any]:
    ran = diag("triage", *arguments, "--json")
    assert ran.code == 0, ran.err
    verdict: dict[str, Any] = json.loads(ran.out)
    return verdict


@pytest.mark.server
def test_a_live_prometheus_gives_the_cause_of_its_recording(
    diag: Diag, prometheus: str, asked: list[str]
) -> None:
    verdict = _verdict(diag, prometheus, *asked)
    assert verdict["leading"] == "context_growth"
    assert verdict["source"] == [{"kind": "prometheus", "ref": prometheus}]


@pytest.mark.server
def test_a_pasted_browser_address_is_understood(diag: Diag, prometheus: str, asked: list[str]) -> None:
    ran = diag("check", f"{prometheus}/graph?g0.expr=up", *asked, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["sources"] == [f"prometheus {prometheus}"]


@pytest.mark.server
def test_a_bundle_recorded_from_prometheus_gives_the_same_verdict(
    diag: Diag, prometheus: str, asked: list[str], tmp_path: Path
) -> None:
    ran = diag("record", prometheus, *asked, "-o", str(tmp_path / "taken.tar.gz"))
    assert (ran.code, ran.out) == (0, "")
    live, taken = _verdict(diag, prometheus, *asked), _verdict(diag, str(tmp_path / "taken.tar.gz"))
    for verdict in (live, taken):
        del verdict["source"], verdict["generated_at"]
    assert taken == live


@pytest.mark.server
def test_an_unknown_label_is_told_with_the_labels_there(
    diag: Diag, prometheus: str, asked: list[str]
) -> None:
    ran = diag("triage", prometheus, *asked, "--match", "namespce=prod")
    assert ran.code == 2
    assert "no series carries the label 'namespce'; labels here: " in ran.err
    assert "model_name" in ran.err


@pytest.mark.server
def test_the_environment_names_the_store(
    diag: Diag, prometheus: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIAG_PROMETHEUS_URL", prometheus)
    assert json.loads(diag("check", *asked, "--json").out)["sources"] == [f"prometheus {prometheus}"]


@pytest.mark.parametrize("path", ["/metrics", ""])
def test_bare_pages_are_found_and_watched(diag: Diag, page_server: str, path: str) -> None:
    verdict = _verdict(diag, page_server + path, "--for", "3s")
    assert verdict["source"] == [{"kind": "scrape", "ref": f"{page_server}/metrics"}]
    assert verdict["coverage"]["signals_present"] > 10
    assert any("--for" in note for note in verdict["notes"])


def test_last_reaches_to_the_end_of_watched_pages(diag: Diag, page_server: str) -> None:
    verdict = _verdict(diag, f"{page_server}/metrics", "--for", "2s", "--last", "1h")
    assert verdict["coverage"]["signals_present"] > 10


def test_a_server_that_is_neither_store_nor_page_is_told(diag: Diag, page_server: str) -> None:
    ran = diag("triage", f"{page_server}/elsewhere")
    assert ran.code == 1
    assert f"{page_server}/elsewhere answers 404" in ran.err
    assert ran.err.count("\n") == 1
