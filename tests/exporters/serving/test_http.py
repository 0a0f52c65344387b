"""The server on loopback: routes, formats, protection, and clients that behave badly."""

from __future__ import annotations

import gzip
import http.client
import math
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from diag_exporter.families import Family, Row
from diag_exporter.passwords import hasher
from diag_exporter.serve import Exporter, Server
from diag_exporter.settings import Address, SettingsError
from diag_exporter.snapshot import Sampler
from diag_exporter.webconfig import load

# The cheapest cost there is: what is tested is the comparison, not the time it takes.
SETTING = b"$2b$04$abcdefghijklmnopqrstuu"


@pytest.fixture
def protected(tmp_path):
    """A web configuration whose user ``prom`` has the password ``swordfish``."""
    hashed = hasher()
    if hashed is None:
        pytest.skip("neither bcrypt nor a crypt that knows it")
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users:\n  prom: {hashed(b'swordfish', SETTING).decode()}\n")
    return path


def test_the_routes(sampler, scripted, serving):
    one = sampler(scripted())
    server = serving(one)
    assert requests.get(f"{server.url}/-/healthy", timeout=5).status_code == 200
    assert requests.get(f"{server.url}/-/ready", timeout=5).status_code == 503
    one.sample()
    assert requests.get(f"{server.url}/-/ready", timeout=5).status_code == 200
    page = requests.get(f"{server.url}/metrics", timeout=5)
    assert 'llmdiag_test_celsius{uuid="GPU-1"} 61.0' in page.text
    assert page.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "/metrics" in requests.get(server.url, timeout=5).text
    assert requests.get(f"{server.url}/other", timeout=5).status_code == 404
    assert requests.post(f"{server.url}/metrics", timeout=5).status_code == 501
    head = requests.head(f"{server.url}/metrics", timeout=5)
    assert head.status_code == 200
    assert head.content == b""


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "openmetrics",
        ),
        ("text/plain;version=0.0.4", "plain"),
        ("application/openmetrics-text;q=0.0, */*", "plain"),
        ("*/*", "plain"),
    ],
)
def test_the_client_chooses_the_format(sampler, scripted, serving, accept, kind):
    one = sampler(scripted())
    one.sample()
    page = requests.get(f"{serving(one).url}/metrics", headers={"Accept": accept}, timeout=5)
    assert kind in page.headers["Content-Type"]
    assert page.text.endswith("# EOF\n") == (kind == "openmetrics")


def test_gzip_only_for_who_takes_it(sampler, scripted, serving):
    one = sampler(scripted())
    one.sample()
    server = serving(one)
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    for encoding, expected in (("gzip, deflate", "gzip"), ("identity", None), ("gzip;q=0", None)):
        connection.request("GET", "/metrics", headers={"Accept-Encoding": encoding})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.getheader("Content-Encoding") == expected
        text = gzip.decompress(body) if expected else body
        assert b"llmdiag_test_celsius" in text
    connection.close()


def test_a_page_while_a_collector_hangs(scripted, serving):
    gate = threading.Event()
    one = Sampler([scripted(gate=gate)], fast_seconds=0.05, slow_seconds=0.05, clock=time.time)
    one.start()
    server = serving(one)
    time.sleep(0.3)
    began = time.monotonic()
    assert requests.get(f"{server.url}/-/healthy", timeout=5).status_code == 200
    text = requests.get(f"{server.url}/metrics", timeout=5).text
    assert time.monotonic() - began < 1.0
    assert 'llmdiag_collector_wedged{collector="scripted"} 1.0' in text
    assert "\nllmdiag_up 0.0" in text
    gate.set()
    assert one.stop()


def test_scrapes_at_once_see_whole_pages(sampler, serving):
    family = Family("llmdiag_pair", "gauge", "Two values of one moment.", ("side",))

    class Pair:
        name, group, families = "pair", "fast", (family,)
        turn = 0

        def collect(self, _now):
            self.turn += 1
            return {"llmdiag_pair": [Row((side,), self.turn) for side in "ab"]}

    one = sampler(Pair())
    one.sample()
    server, stop = serving(one), threading.Event()

    def write():
        while not stop.is_set():
            one.sample()

    writer = threading.Thread(target=write)
    writer.start()

    def values(_):
        text = requests.get(f"{server.url}/metrics", timeout=10).text
        return {line.split()[1] for line in text.splitlines() if line.startswith("llmdiag_pair{")}

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(values, range(60)))
    stop.set()
    writer.join()
    assert all(len(pair) == 1 for pair in seen)
    assert len({next(iter(pair)) for pair in seen}) > 1


def test_silent_clients_block_nobody_and_are_bounded(sampler, scripted, serving):
    one = sampler(scripted())
    one.sample()
    server = serving(one)
    silent = [socket.create_connection(server.server_address[:2]) for _ in range(30)]
    assert requests.get(f"{server.url}/metrics", timeout=5).status_code == 200
    silent += [socket.create_connection(server.server_address[:2]) for _ in range(60)]
    time.sleep(0.3)
    # Past the bound a connection is closed at once, not left to wait.
    silent[-1].settimeout(5)
    assert silent[-1].recv(10) == b""
    for one_socket in silent:
        one_socket.close()
    time.sleep(0.2)
    assert requests.get(f"{server.url}/metrics", timeout=5).status_code == 200


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 70_000]
)
def test_garbage_is_survived(sampler, scripted, serving, garbage):
    one = sampler(scripted())
    one.sample()
    server = serving(one)
    with socket.create_connection(server.server_address[:2]) as client:
        client.sendall(garbage)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(5)
        while client.recv(65536):
            pass
    assert requests.get(f"{server.url}/metrics", timeout=5).status_code == 200


def test_a_taken_port_is_said_in_words(sampler, scripted, serving):
    server = serving(sampler(scripted()))
    with pytest.raises(SettingsError, match=r"is taken: another diag-exporter or another program"):
        Server(Address("127.0.0.1", server.server_port), Exporter({}))


def test_a_host_nobody_knows_is_said_in_words():
    with pytest.raises(SettingsError, match=r"--listen no-such-host\.invalid:0"):
        Server(Address("no-such-host.invalid", 0), Exporter({}))


def test_a_password_guards_the_page_and_no_probe(sampler, scripted, serving, protected):
    one = sampler(scripted())
    one.sample()
    server = serving(one, web=load(protected))
    url = f"{server.url}/metrics"
    refused = requests.get(url, timeout=5)
    assert refused.status_code == 401
    assert "llmdiag" not in refused.text
    assert refused.headers["WWW-Authenticate"].startswith("Basic ")
    for wrong in (("prom", "herring"), ("other", "swordfish"), ("prom", ""), ("prom", "swordfish\0x")):
        assert requests.get(url, auth=wrong, timeout=5).status_code == 401
    for _ in range(2):
        assert requests.get(url, auth=("prom", "swordfish"), timeout=5).status_code == 200
    assert requests.get(url, headers={"Authorization": "Basic %%%"}, timeout=5).status_code == 401
    assert requests.get(url, headers={"Authorization": "Bearer x"}, timeout=5).status_code == 401
    assert requests.get(f"{server.url}/-/healthy", timeout=5).status_code == 200


def test_tls(sampler, scripted, serving, certificate):
    (certificate / "web.yml").write_text(
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
        "http_server_config:\n  headers:\n    X-Frame-Options: deny\n"
    )
    one = sampler(scripted())
    one.sample()
    server = serving(one, web=load(certificate / "web.yml"))
    # A client that speaks plain HTTP, and one that says nothing, hold nobody up.
    silent = socket.create_connection(server.server_address[:2])
    with pytest.raises(requests.ConnectionError):
        requests.get(server.url.replace("https", "http"), timeout=5)
    page = requests.get(f"{server.url}/metrics", verify=certificate / "cert.pem", timeout=5)
    assert page.status_code == 200
    assert page.headers["X-Frame-Options"] == "deny"
    silent.close()


def test_ready_needs_every_part(sampler, scripted):
    first, second = sampler(scripted(name="a")), sampler(scripted(name="b"))
    exporter = Exporter({"x": first, "y": second})
    first.sample()
    assert not exporter.ready()
    assert math.isinf(second.snapshot().age)
    second.sample()
    assert exporter.ready()
