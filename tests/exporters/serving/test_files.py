"""Settings, web configuration and the YAML in it: what is taken, and one clear line for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from diag_exporter.passwords import BCRYPT, Passwords, hasher
from diag_exporter.plain_yaml import YamlError, parse
from diag_exporter.settings import Address, Settings, SettingsError, address, merged
from diag_exporter.webconfig import OPEN, load

HASH = "$2y$10$" + "a" * 53


def test_yaml_as_web_configurations_write_it():
    assert parse(
        "---\n"
        "# comment\n"
        "tls_server_config:\n"
        "  cert_file: 'a: b#c.pem'   # why\n"
        '  key_file: "k\\tey.pem"\n'
        "  cipher_suites:\n"
        "  - TLS_A\n"
        "  - TLS_B\n"
        "  empty:\n"
        "http_server_config:\n"
        "    http2: true\n"
        "    headers: {}\n"
        "basic_auth_users:\n"
        f"  al-ice: {HASH}\n"
        f"  'b b': {HASH}\n"
        "port: 10\n"
        "some: [a, 'b']\n"
    ) == {
        "tls_server_config": {
            "cert_file": "a: b#c.pem",
            "key_file": "k\tey.pem",
            "cipher_suites": ["TLS_A", "TLS_B"],
            "empty": None,
        },
        "http_server_config": {"http2": True, "headers": {}},
        "basic_auth_users": {"al-ice": HASH, "b b": HASH},
        "port": 10,
        "some": ["a", "b"],
    }
    assert parse("") == parse("# nothing\n") == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2\n", 2),
        ("a:\n  b: 1\n    c: 2\n", 3),
        ("a:\n\tb: 1\n", 2),
        ("a: &x 1\n", 1),
        ("a: |\n  text\n", 1),
        ("a: {b: 1}\n", 1),
        ("just text\n", 1),
        ("- a\n", 1),
        ("a: 'open\n", 1),
        ("a: 1\n  b: 2\n", 2),
        ("  a: 1\nb: 2\n", 2),
        ("a: b: c\n", 1),
    ],
)
def test_yaml_beyond_that_is_refused_with_its_line(text, line):
    with pytest.raises(YamlError, match=f"^line {line}: "):
        parse(text)


def test_no_web_configuration_protects_nothing():
    assert load(None) is OPEN


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("basic_auth_user:\n  a: b\n", "basic_auth_user is not known"),
        ("basic_auth_users:\n  a: secret\n", "the password of a is not a bcrypt hash"),
        ("basic_auth_users:\n  a: $2y$31$" + "a" * 53 + "\n", "not a bcrypt hash"),
        ("basic_auth_users: x\n", "must be a mapping"),
        ("tls_server_config:\n  cert_file: c.pem\n", "needs key_file"),
        ("tls_server_config:\n  cert_file: c.pem\n  key_file: k.pem\n", "No such file"),
        ("tls_server_config:\n  cert_file: web.yml\n  key_file: web.yml\n", "certificates cannot be used"),
        ("tls_server_config:\n  cert_file: a\n  key_file: b\n  min_version: TLS10\n", "cannot be TLS10"),
        (
            "tls_server_config:\n  cert_file: a\n  key_file: b\n  cipher_suites: []\n",
            "cipher_suites is not known",
        ),
        ("http_server_config:\n  headers:\n    X-Mine: 1\n", "headers.X-Mine is not known"),
        ("rate_limit:\n  burst: 1\n", "rate_limit is not known"),
        ("a: [\n", "line 1"),
    ],
)
def test_a_bad_web_configuration_is_one_line(tmp_path, text, says):
    path = tmp_path / "web.yml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=says.replace("[", r"\[")) as refused:
        load(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    # What stands where a password belongs is one, and must not reach a log.
    assert "secret" not in str(refused.value)


def test_a_missing_web_configuration_is_one_line(tmp_path):
    with pytest.raises(SettingsError, match=r"web.yml cannot be read: No such file"):
        load(tmp_path / "web.yml")


def test_client_certificates_need_an_authority(certificate):
    path = certificate / "mutual.yml"
    tls = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
    path.write_text(tls + "  client_auth_type: RequireAndVerifyClientCert\n")
    with pytest.raises(SettingsError, match="needs client_ca_file"):
        load(path)
    path.write_text(tls + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: cert.pem\n")
    assert load(path).tls is not None


def test_a_known_bcrypt_hash():
    hashed = hasher()
    if hashed is None:
        pytest.skip("neither bcrypt nor a crypt that knows it")
    # A published test vector of bcrypt: cost 5, "U*U".
    vector = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
    assert BCRYPT.fullmatch(vector)
    users = Passwords({"u": vector}, hashed)
    assert users.match("u", "U*U")
    assert not users.match("u", "U*V")
    assert not users.match("u", "U*U" + "x" * 80)
    assert not users.match("nobody", "U*U")


def test_a_match_is_remembered_and_a_miss_is_not():
    asked = []

    def hashed(password, setting):
        asked.append(password)
        return setting if password == b"right" else b"other"

    users = Passwords({"u": HASH}, hashed)
    assert [users.match("u", "right") for _ in range(3)] == [True] * 3
    assert [users.match("u", "wrong") for _ in range(3)] == [False] * 3
    assert asked == [b"right"] + [b"wrong"] * 3


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("127.0.0.1:9877", Address("127.0.0.1", 9877)),
        (":9877", Address("", 9877)),
        ("[::1]:9877", Address("::1", 9877)),
        ("host:0", Address("host", 0)),
    ],
)
def test_an_address(text, known):
    assert address(text, "--listen") == known


@pytest.mark.parametrize("text", ["9877", "host", "host:", "host:70000", "::1:9877", "host:-1", ""])
def test_no_address(text):
    with pytest.raises(SettingsError, match=r"--listen is HOST:PORT"):
        address(text, "--listen")


def test_flags_stand_over_the_file(tmp_path):
    path = tmp_path / "exporter.toml"
    path.write_text('fast = 2\nslow = 60.0\nown = ["vllm"]\nlog = ["a.jsonl"]\nweb_config = "w.yml"\n')
    known = merged({"fast": 0.5, "own": None, "engine": []}, path)
    assert known == Settings(
        fast=0.5, slow=60.0, own=("vllm",), log=(Path("a.jsonl"),), web_config=Path("w.yml")
    )


def test_a_switch_of_the_file_stays_on_unless_a_flag_is_given(tmp_path):
    path = tmp_path / "exporter.toml"
    path.write_text('from_start = true\nlog_field = "session=chat"\ntenant_header = ""\n')
    known = merged({"from_start": None, "session_in_request_id": True}, path)
    assert known == Settings(
        from_start=True, session_in_request_id=True, log_field=("session=chat",), tenant_header=""
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fsat = 1\n", "fsat is not known; there are"),
        ("fast = 'x'\n", "fast must be a number"),
        ("fast = true\n", "fast must be a number"),
        ("top = 1.5\n", "top must be a number"),
        ("own = 3\n", "own must be a list of texts"),
        ("listen = 3\n", "listen must be a text"),
        ("fast\n", "exporter.toml: "),
        ("fast = nan\n", "at least 0.05"),
        ("stale_after = 0\n", "at least 1 interval"),
        ("slow = 0.5\nfast = 2\n", "--slow must not be shorter"),
        ("profile = 'some'\n", "minimal, default, full"),
        ("top = 0\n", "between 1 and 100"),
        ("on = ['a']\noff = ['a']\n", "a: both --on and --off"),
        ("engine = ['localhost:8000']\n", "--engine is a URL"),
        ("engine = ['http://[::1']\n", "--engine is a URL"),
        ("otlp_listen = 'x'\n", "--otlp-listen is HOST:PORT"),
        ("upstream = 'http://127.0.0.1:1'\n", "belong together"),
        ("include_usage = 1\n", "include_usage must be true or false, not 1"),
        ("include_usage = true\n", "are the proxy's: give --proxy-listen"),
        ("proxy_workers = 2\n", "are the proxy's: give --proxy-listen"),
        ("max_sessions = 5\n", "--max-sessions must be between"),
        ("active = 0\n", "--active must be at least 1 second"),
        ("log_field = 3\n", "log_field must be a list of texts"),
    ],
)
def test_bad_settings_are_one_line(tmp_path, text, says):
    path = tmp_path / "exporter.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=says) as refused:
        merged({}, path)
    assert "\n" not in str(refused.value)
