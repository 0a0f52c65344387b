"""What a store says of itself, and that not telling is not the same as none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from diag.api.assets import check
from diag.errors import NotPrometheus, SourceError
from diag.model import Window
from diag.sources.access import Client
from diag.sources.promstate import LoadedRule, StoreState

WINDOW = Window(1000.0, 4600.5)


def _ok(data: Any) -> str:
    return json.dumps({"status": "success", "data": data})


@pytest.fixture
def state(scripted: Any, answer: Any) -> Callable[..., tuple[StoreState, Any]]:
    """A store with the given answers by path; 404 for the others."""

    def build(**answers: Any) -> tuple[StoreState, Any]:
        pages = {f"/api/v1/{name.replace('__', '/')}": body for name, body in answers.items()}

        def reply(asked: str) -> Any:
            body = pages.get(asked.partition("?")[0])
            return answer("no", status=404) if body is None else answer(body)

        server = scripted(reply)
        return StoreState(Client(server.url)), server

    return build


def test_the_names_are_asked_for_the_window(scripted: Any, answer: Any) -> None:
    server = scripted(lambda _: answer(_ok(["up", "a:b"])))
    assert StoreState(Client(server.url)).names(WINDOW) == {"up", "a:b"}
    (asked,) = [path for _, path, _ in server.asked]
    assert asked == "/api/v1/label/__name__/values?start=1000.000&end=4600.500"


@pytest.mark.parametrize("body", ["<html>sign in</html>", "[]", '{"status": "success"}', '{"a": 1}'])
def test_what_lists_no_names_is_no_store(scripted: Any, answer: Any, body: str) -> None:
    server = scripted(lambda _: answer(body))
    with pytest.raises(NotPrometheus):
        StoreState(Client(server.url)).names(WINDOW)


def test_rules_of_every_group(state: Any) -> None:
    groups = {
        "groups": [
            {"name": "a", "rules": [{"name": "X", "type": "alerting", "query": "up == 0", "lastError": "boom",
                                     "labels": {"severity": "info"}, "annotations": {"summary": "s"}}]},
            {"name": "b", "rules": [{"name": "y:z", "type": "recording", "query": "up"}]},
        ]
    }  # fmt: skip
    assert state(rules=_ok(groups))[0].rules() == (
        LoadedRule("X", True, "up == 0", {"severity": "info"}, {"summary": "s"}, "boom"),
        LoadedRule("y:z", False, "up"),
    )


def test_no_rules_is_not_untold(state: Any) -> None:
    none = _ok({"groups": []})
    assert state(rules=none, status__config=_ok({"yaml": "global: {}"}))[0].rules() == ()
    assert state(rules=none, status__config=_ok({"yaml": ""}))[0].rules() is None
    assert state(rules=none)[0].rules() is None
    assert state()[0].rules() is None
    assert state(rules='{"status": "error", "error": "unsupported"}')[0].rules() is None
    assert state(rules=_ok({"groups": 3}))[0].rules() is None


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (
            "global:\n  external_labels:\n    llmdiag_url: http://d\n    n: 3\n",
            {"llmdiag_url": "http://d", "n": "3"},
        ),
        ("global: {}\n", {}),
        ("global:\n  external_labels:\n", {}),
    ],
)
def test_external_labels(state: Any, text: str, labels: dict[str, str]) -> None:
    assert state(status__config=_ok({"yaml": text}))[0].external_labels() == labels


@pytest.mark.parametrize(
    "data", [{}, {"yaml": ""}, {"yaml": None}, [], {"yaml": "a: [unclosed"}, {"yaml": "- a\n"}]
)
def test_a_configuration_that_is_not_shown(state: Any, data: Any) -> None:
    assert state(status__config=_ok(data))[0].external_labels() is None


def test_a_store_that_shows_nothing_and_one_that_is_gone(state: Any, unused_url: str) -> None:
    assert state()[0].external_labels() is None
    with pytest.raises(SourceError, match="cannot reach"):
        StoreState(Client(unused_url)).rules()


@pytest.fixture
def unused_url() -> str:
    """Nobody listens on port 1."""
    return "http://127.0.0.1:1"


@pytest.mark.server
def test_another_store_takes_every_query_of_ours_and_tells_less(
    victoria_url: str, stored_bundles: Any
) -> None:
    header = json.loads((stored_bundles["kv_cache_exhaustion"] / "bundle.json").read_text("utf-8"))
    end = header["window"]["to"]
    checked = check(victoria_url, Window(end - 180.0, end))
    refused = [
        (one.what.name, reason.text)
        for one in checked.sights
        for reason in one.reasons
        if reason.kind == "refused"
    ]
    assert refused == []
    seen = {one.what.name for one in checked.of("alert", "sees")}
    assert {"LLMKVCacheSaturated", "LLMQueueGrowing", "LLMTTFTBudgetBurnFast"} <= seen
    assert checked.loaded is None
    assert checked.labels_missing is None
