from __future__ import annotations

from pathlib import Path

import pytest

from diag.cli.asking import access, question, references
from diag.cli.config import Defaults
from diag.cli.options import Asked
from diag.errors import UsageError
from diag.model import Window
from diag.signals.algebra import Matcher

NOW = 1_795_990_000.0
NONE = Defaults()


def test_the_last_hours_end_now() -> None:
    assert question(Asked(last="2h"), NONE, NOW).window == Window(NOW - 7200, NOW)


def test_from_without_to_ends_now() -> None:
    assert question(Asked(start="1795985842"), NONE, NOW).window == Window(1_795_985_842, NOW)


def test_an_end_in_the_future_is_cut_to_now() -> None:
    assert question(Asked(start="1795985842", end="1795999999"), NONE, NOW).window == Window(
        1_795_985_842, NOW
    )


def test_no_window_leaves_the_choice_to_the_source() -> None:
    assert question(Asked(), Defaults(last="3h"), NOW).window is None


@pytest.mark.parametrize(
    ("text", "matcher"),
    [
        ("namespace=prod", Matcher("namespace", "=", "prod")),
        ('namespace="prod"', Matcher("namespace", "=", "prod")),
        ("pod!=a", Matcher("pod", "!=", "a")),
        ("pod=~a.*", Matcher("pod", "=~", "a.*")),
        ("pod!~a|b", Matcher("pod", "!~", "a|b")),
        ("pod=a=b", Matcher("pod", "=", "a=b")),
        ("pod=", Matcher("pod", "=", "")),
    ],
)
def test_matchers(text: str, matcher: Matcher) -> None:
    assert question(Asked(match=[text]), NONE, NOW).matchers == (matcher,)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (Asked(last="2h", start="1795985842"), "exclude each other"),
        (Asked(end="1795985842"), "--to needs --from"),
        (Asked(start="1795985842", end="1795985842"), "--to is not after --from"),
        (Asked(start="1795985842", end="1795985000"), "--to is not after --from"),
        (Asked(start="1796000000"), "--from lies 2.8 h in the future"),
        (Asked(start="2026-11-29T10:00"), "no time zone"),
        (Asked(baseline_start="1795985842"), "belong together"),
        (Asked(baseline_start="1795985842", baseline_end="1795985000"), "--baseline-to is not after"),
        (Asked(match=["prod"]), "has no ="),
        (Asked(match=["=prod"]), "no label name"),
        (Asked(match=["a-b=c"]), "no label name"),
        (Asked(match=["pod!a"]), "has no ="),
        (Asked(match=["pod=~("]), "no regular expression"),
        (Asked(requests=["nowhere.jsonl"]), "--requests nowhere.jsonl: the file does not exist"),
        (Asked(log=["."]), "is a folder"),
        (Asked(requests_map="prompt_tokens"), "is no pair"),
        (Asked(scrape_for="long"), "--for"),
    ],
)
def test_a_wrong_question_is_one_clear_line(asked: Asked, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        question(asked, NONE, NOW)
    assert "\n" not in str(caught.value)


def test_a_mapping_is_pairs() -> None:
    asked = Asked(requests_map="prompt_tokens=usage.prompt_tokens, session=user")
    assert question(asked, NONE, NOW).requests_map == {
        "prompt_tokens": "usage.prompt_tokens",
        "session": "user",
    }


def test_sources_come_from_the_command_line_then_from_defaults() -> None:
    assert references(Asked(sources=["a"]), Defaults(sources=("b",))) == ["a"]
    assert references(Asked(), Defaults(sources=("b",))) == ["b"]
    with pytest.raises(UsageError, match="no source given"):
        references(Asked(), NONE)


def test_credentials_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "basic").write_text("me:pass:word\n")
    assert access(Asked(bearer_token_file=str(tmp_path / "token")), NONE).bearer_token == "s3cret"
    assert access(Asked(basic_auth_file=str(tmp_path / "basic")), NONE).basic == ("me", "pass:word")
    headers = access(Asked(header=["X-Scope-OrgID: team"]), Defaults(headers={"A": "b"})).headers
    assert headers == {"A": "b", "X-Scope-OrgID": "team"}
    assert access(Asked(timeout="5s"), NONE).timeout_seconds == 5


@pytest.mark.parametrize("text", ["", "a\nb\n"])
def test_a_secret_is_one_line_and_never_echoed(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(UsageError, match="exactly one line"):
        access(Asked(bearer_token_file=str(tmp_path / "token")), NONE)


def test_a_broken_header_is_not_echoed() -> None:
    with pytest.raises(UsageError) as caught:
        access(Asked(header=["Authorization Bearer s3cret"]), NONE)
    assert "s3cret" not in str(caught.value)


def test_basic_auth_needs_a_colon_and_a_key_needs_a_certificate(tmp_path: Path) -> None:
    (tmp_path / "basic").write_text("s3cret")
    with pytest.raises(UsageError) as caught:
        access(Asked(basic_auth_file=str(tmp_path / "basic")), NONE)
    assert "user:password" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(UsageError, match="--client-key needs"):
        access(Asked(client_key="k.pem"), NONE)
