"""Bad answers and closed doors: one clear line each, and no secret in it."""

from __future__ import annotations

import json
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diag.errors import (
    DiagError,
    NotPrometheus,
    QueryRejected,
    QueryTooExpensive,
    SourceError,
    SourceRefused,
    SourceUnreachable,
    UsageError,
)
from diag.signals.frame import Grid
from diag.sources.access import Access, Client, public_url
from diag.sources.promapi import Api
from diag.sources.prometheus import PrometheusSource

_FINE = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}})
_MATRIX = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}})


def _line(error: DiagError) -> str:
    said = str(error)
    assert "\n" not in said
    assert said
    return said


def _refused(url: str, access: Access | None = None) -> SourceError:
    with pytest.raises(SourceError) as caught:
        PrometheusSource(url, access, sleep=lambda _seconds: None)
    _line(caught.value)
    return caught.value


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        error = _refused(f"http://oncall:hunter2@127.0.0.1:{port}/prometheus?token=abc")
    assert isinstance(error, SourceUnreachable)
    assert "connection refused" in str(error)
    assert f"http://127.0.0.1:{port}/prometheus" in str(error)
    everything = "".join(traceback.format_exception(error))
    for secret in ("hunter2", "oncall", "abc"):
        assert secret not in everything.split("During")[0].split("\n")[-2]
        assert secret not in str(error)


def test_a_name_that_does_not_resolve() -> None:
    error = _refused("http://no-such-host.invalid:9090")
    assert isinstance(error, SourceUnreachable)
    assert "no-such-host.invalid" in str(error)


@pytest.mark.parametrize(
    ("status", "body", "kind", "content_type", "said"),
    [
        (200, "<html>Grafana</html>", "text/html", NotPrometheus, "an HTML page"),
        (200, "hello", "text/plain", NotPrometheus, "no Prometheus answer"),
        (200, '{"status":"error","errorType":"bad_data","error":"tenant"}', "", QueryRejected, "tenant"),
        (200, '{"a": 1}', "application/json", NotPrometheus, "no Prometheus answer"),
        (400, '{"status":"error","errorType":"bad_data","error":"bad\\nquery"}', "", QueryRejected, "bad"),
        (404, "<html>not found</html>", "text/html", NotPrometheus, "404"),
        (401, "", "", SourceRefused, "401"),
        (403, "", "", SourceRefused, "403"),
        (500, "disk\nfull", "text/plain", SourceUnreachable, "disk"),
        (503, "", "", SourceUnreachable, "still answers 503"),
        (429, "", "", SourceUnreachable, "still answers 429"),
        (413, "", "", QueryTooExpensive, "too large"),
        (200, '{"status":"success","data":{"resultType":"string","result":"x"}}', "", NotPrometheus, "shape"),
        (200, "", "", NotPrometheus, "no Prometheus answer"),
        (200, b"\xff\xfe\x00", "", NotPrometheus, "no Prometheus answer"),
    ],
)  # fmt: skip
def test_bad_answers(
    scripted: Callable[..., Any], answer: Callable[..., Any],
    status: int, body: str, content_type: type[SourceError], kind: str, said: str,
) -> None:  # fmt: skip
    server = scripted(lambda _path: answer(body, status, {"Content-Type": kind}))
    error = _refused(server.url)
    assert type(error) is content_type
    assert said in str(error)
    assert error.hint


def test_retries_wait_as_told_and_end(scripted: Callable[..., Any], answer: Callable[..., Any]) -> None:
    waits: list[float] = []
    server = scripted(lambda _path: answer("", 429, {"Retry-After": "7"}))
    with pytest.raises(SourceUnreachable):
        Client(server.url, sleep=waits.append).get("/api/v1/query", {"query": "up"})
    assert waits == [7.0] * 4
    assert len(server.asked) == 5


def test_a_long_retry_after_is_cut(scripted: Callable[..., Any], answer: Callable[..., Any]) -> None:
    waits: list[float] = []
    server = scripted(lambda _path: answer("", 503, {"Retry-After": "86400"}))
    with pytest.raises(SourceUnreachable):
        Client(server.url, sleep=waits.append).get()
    assert max(waits) <= 15.0


def test_a_passing_trouble_is_survived(scripted: Callable[..., Any], answer: Callable[..., Any]) -> None:
    replies = iter([answer("", 503, {}), answer("", 429, {})])
    server = scripted(lambda _path: next(replies, answer(_FINE)))
    source = PrometheusSource(server.url, sleep=lambda _seconds: None)
    assert source.ref.ref == server.url
    assert len(server.asked) == 3


def test_credentials_go_along_and_stay_hidden(
    scripted: Callable[..., Any], answer: Callable[..., Any]
) -> None:
    server = scripted(lambda _path: answer(_FINE))
    host = server.url.removeprefix("http://")
    PrometheusSource(f"http://me:p%40ss@{host}/prom", Access(headers={"X-Scope-OrgID": "team"}))
    _, path, headers = server.asked[0]
    assert path.startswith("/prom/api/v1/query")
    assert headers["Authorization"] == "Basic bWU6cEBzcw=="
    assert headers["X-Scope-OrgID"] == "team"
    access = Access(bearer_token="t0ken")
    PrometheusSource(server.url, access)
    assert server.asked[-1][2]["Authorization"] == "Bearer t0ken"
    assert "t0ken" not in repr(access)
    assert PrometheusSource(f"http://me:p%40ss@{host}/prom").ref.ref == f"http://{host}/prom"


def test_credentials_do_not_follow_to_another_host(
    scripted: Callable[..., Any], answer: Callable[..., Any]
) -> None:
    other = scripted(lambda _path: answer(_FINE))
    elsewhere = other.url.replace("127.0.0.1", "localhost")
    server = scripted(lambda _path: answer("", 302, {"Location": f"{elsewhere}/x?code=s3cret"}))
    error = _refused(server.url, Access(bearer_token="t0ken", headers={"X-Scope-OrgID": "team"}))
    assert isinstance(error, NotPrometheus)
    assert "redirects to localhost" in str(error)
    assert "s3cret" not in str(error)
    assert other.asked == []


def test_a_redirect_on_the_same_host_is_followed(
    scripted: Callable[..., Any], answer: Callable[..., Any]
) -> None:
    def answers(path: str) -> object:
        if path.startswith("/new"):
            return answer(_FINE)
        return answer("", 301, {"Location": "/new" + path})

    server = scripted(answers)
    PrometheusSource(server.url)
    assert "query=vector" in server.asked[-1][1]
    assert server.asked[-1][1].startswith("/new/api/v1/query?")


def test_a_redirect_in_circles_ends(scripted: Callable[..., Any], answer: Callable[..., Any]) -> None:
    server = scripted(lambda path: answer("", 302, {"Location": path}))
    assert "circles" in str(_refused(server.url))


def test_long_queries_are_posted(scripted: Callable[..., Any], answer: Callable[..., Any]) -> None:
    server = scripted(lambda _path: answer(_FINE))
    Api(Client(server.url)).instant("x" * 5000, 1.0)
    method, asked, _ = server.asked[0]
    assert method == "POST"
    assert "x" * 5000 in asked


def test_expensive_queries_are_halved_then_given_up(
    scripted: Callable[..., Any], answer: Callable[..., Any]
) -> None:
    grid = Grid(0.0, 63.0, 1.0, 10.0)
    too_much = answer(
        '{"status":"error","errorType":"execution","error":"query processing would load too many samples"}',
        422,
    )

    def answers(path: str) -> object:
        times = dict(part.split("=", 1) for part in path.partition("?")[2].split("&"))
        return answer(_MATRIX) if float(times["end"]) - float(times["start"]) < 20 else too_much

    server = scripted(answers)
    assert Api(Client(server.url)).ranged("up", grid) == []
    spans = [path for _, path, _ in server.asked]
    assert len(spans) == 1 + 2 + 4
    hopeless = scripted(lambda _path: too_much)
    with pytest.raises(QueryTooExpensive, match="too many samples"):
        Api(Client(hopeless.url)).ranged("up", grid)


def test_infinities_in_answers_are_numbers(scripted: Callable[..., Any], answer: Callable[..., Any]) -> None:
    points = [[0, "+Inf"], [1, "NaN"], [2, "-Inf"], [3, "1e3"]]
    data = {"resultType": "matrix", "result": [{"metric": {"a": "b"}, "values": points}]}
    server = scripted(lambda _path: answer(json.dumps({"status": "success", "data": data})))
    values = Api(Client(server.url)).ranged("up", Grid(0.0, 3.0, 1.0, 1.0))[0].values
    assert [str(one) for one in values.tolist()] == ["inf", "nan", "-inf", "1000.0"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://u:p@host:9090/a/b/?q=1#f", "http://host:9090/a/b"),
        ("https://host", "https://host"),
        ("http://[::1]:9090", "http://[::1]:9090"),
        ("http://u:p@h@ost:1/", "http://ost:1"),
    ],
)
def test_public_urls_hold_no_secret(url: str, shown: str) -> None:
    assert public_url(url) == shown


@pytest.mark.parametrize("url", ["ftp://u:secret@host", "no-url", "http://", "http://u:secret@host:port/"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Client(url)
    assert "secret" not in str(caught.value)


@pytest.mark.server
def test_a_real_gate(gate: Any) -> None:
    host = gate.http.removeprefix("http://")
    assert PrometheusSource(f"{gate.http}/monitoring").ref.ref == f"{gate.http}/monitoring"
    assert PrometheusSource(f"{gate.http}/moved").ref.kind == "prometheus"
    PrometheusSource(f"http://oncall:s3cret%40home@{host}/private")
    PrometheusSource(f"{gate.http}/private", Access(basic=("oncall", "s3cret@home")))
    assert isinstance(_refused(f"http://oncall:wrong@{host}/private"), SourceRefused)
    missing = _refused(gate.http)
    assert "path prefix" in str(missing)
    login = _refused(f"{gate.http}/login")
    assert "sso.invalid" in str(login)
    assert "secret" not in str(login)
    assert "502" in str(_refused(f"{gate.http}/dead"))


@pytest.mark.server
def test_a_real_gate_behind_tls(gate: Any, tmp_path: Path) -> None:
    authority = str(gate.authority)
    PrometheusSource(gate.https, Access(ca_file=authority))
    untrusted = _refused(gate.https)
    assert isinstance(untrusted, SourceUnreachable)
    assert "certificate is not trusted" in str(untrusted)
    assert "--ca-file" in str(untrusted)
    assert "plain http" in str(_refused(gate.http.replace("http://", "https://")))
    assert isinstance(_refused(f"{gate.https}/member", Access(ca_file=authority)), SourceRefused)
    key = str(gate.authority.with_name("server.key"))
    PrometheusSource(f"{gate.https}/member", Access(ca_file=authority, client_cert=authority, client_key=key))
    gone = _refused(gate.https, Access(ca_file=str(tmp_path / "none.pem")))
    assert "certificate" in str(gone)


@pytest.mark.server
def test_a_real_limit_is_waited_out(gate: Any) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        import time

        waits.append(seconds)
        time.sleep(seconds)

    client = Client(f"{gate.http}/limited", sleep=sleep)
    for _ in range(3):
        assert client.get("/api/v1/query", {"query": "vector(1)"}).status == 200
    assert waits, "the limit was never met"
