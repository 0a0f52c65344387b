"""The command as a process: it starts, says what is wrong, reloads, and stops."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from diag_exporter.cli import main
from diag_exporter.passwords import hasher


@pytest.fixture
def environment(checkout: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(checkout / "exporters")}


@pytest.fixture
def exporter(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Exporting]]:
    """``exporter("demo", …)`` starts one on a free port; what still runs at the end is stopped."""
    running: list[Exporting] = []

    def start(*arguments: str) -> Exporting:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        log = tmp_path / f"log{len(running)}"
        command = [sys.executable, "-m", "diag_exporter", *arguments, "--listen", f"127.0.0.1:{port}"]
        with log.open("w") as out:
            process = subprocess.Popen(command, env=environment, stderr=out, stdout=out)
        one = Exporting(process, port, log)
        running.append(one)
        return one

    yield start
    for one in running:
        one.process.kill()
        one.process.wait(10)


class Exporting:
    """A running exporter, and what it has said."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text()

    def get(self, path: str) -> tuple[int, str]:
        """Status and text; status 0 while nobody listens."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"it did not happen; said: {self.said}"
            time.sleep(0.02)

    def ready(self) -> Exporting:
        self.until(lambda: self.process.poll() is not None or self.get("/-/ready")[0] == 200)
        assert self.process.poll() is None, self.said
        return self


def _run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "diag_exporter", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=20)


def test_a_demo_serves_a_clean_page_and_stops_on_sigterm(exporter: Callable[..., Exporting]) -> None:
    one = exporter("demo").ready()
    page = one.get("/metrics")[1]
    assert 'llmdiag_gpu_process_memory_bytes{uuid="GPU-00000000-0000-0000-0000-000000000000"' in page
    assert re.search(r'llmdiag_gpu_foreign_memory_bytes\{.*"\} 0\.0', page)
    assert "llmdiag_up 1.0" in page
    promtool = shutil.which("promtool")
    if promtool:
        done = subprocess.run(
            [promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(5) == 0
    assert one.said.splitlines()[-1].endswith("/metrics")


_GIVING_UP = """
from diag_exporter import assembly, cli
from diag_exporter.serve import give_up
class Giving:
    name, group, families = "giving", "fast", ()
    def collect(self, now):
        give_up("the driver was replaced: restart the exporter")
        return {}
    def close(self):
        print("closed", flush=True)
assembly.PARTS["demo"] = lambda settings: [Giving()]
cli.main(["demo", "--listen", "127.0.0.1:0"])
"""


def test_an_exporter_that_must_be_restarted_stops_cleanly_and_fails(environment: dict[str, str]) -> None:
    """A supervisor that restarts only what failed must bring it back."""
    done = subprocess.run(
        [sys.executable, "-c", _GIVING_UP], env=environment, capture_output=True, text=True, check=False,
        timeout=20,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stdout == "closed\n"
    assert done.stderr.splitlines()[-1] == "diag-exporter: the driver was replaced: restart the exporter"


def test_without_a_driver_the_page_says_so_and_the_process_lives(exporter: Callable[..., Exporting]) -> None:
    one = exporter("gpu").ready()
    assert one.get("/-/healthy")[0] == 200
    page = one.get("/metrics")[1]
    assert 'llmdiag_collector_success{collector="clocks"} 0.0' in page
    assert "llmdiag_gpu_sm_clock_hertz" not in page


def test_a_second_exporter_on_the_port_says_what_to_do(
    exporter: Callable[..., Exporting], environment: dict[str, str]
) -> None:
    one = exporter("demo").ready()
    done = _run(environment, "demo", "--listen", f"127.0.0.1:{one.port}")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"diag-exporter: 127.0.0.1:{one.port} is taken: another diag-exporter or another program listens "
        "there; stop it or choose another --listen"
    ]
    assert one.get("/metrics")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("gpu", "--listen", "nowhere"), 1, "--listen is HOST:PORT"),
        (("engine",), 1, "nothing to read: give --engine URL"),
        (("sessions",), 1, "nothing to read: give --log FILE"),
        (("engine", "--engine", "127.0.0.1:8000"), 1, "--engine is a URL"),
        (("engine", "--engine", "pod-0=127.0.0.1:8000"), 1, "--engine is a URL"),
        (("engine", "--engine", "x=http://a:1", "--engine", "x=http://b:1"), 1, "x is given twice"),
        (("gpu", "--off", "clock"), 1, "no collector is called clock; there are clocks, "),
        (("gpu", "--own", "("), 1, "is no regular expression"),
        (("demo", "--script", "/nonexistent.json"), 1, "cannot be read: No such file"),
        (("gpu", "--config", "/nonexistent.toml"), 1, "cannot be read: No such file"),
        (("gpu", "--web-config", "/nonexistent.yml"), 1, "cannot be read: No such file"),
        (("sessions", "--log", "x", "--preset", "odd"), 1, "odd"),
        (("sessions", "--log", "x", "--log-field", "a=b"), 1, "'a=b' is not FIELD=PATH; fields are "),
        (("sessions", "--log", "x", "--preset", "nginx", "--log-field", "ts=t"), 1, "goes with plain lines"),
        (("engine", "--engine", "http://h:1", "--engine-token", "/nonexistent"), 1, "cannot be read: No"),
        (("sessions", "--proxy-listen", ":0"), 1, "--proxy-listen and --upstream belong together"),
        (("gpu", "--fsat", "1"), 2, "No such option"),
        (("gpus",), 2, "No such command"),
        (("gpu", "--fast", "x"), 2, "--fast"),
    ],
)
def test_what_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, says: str
) -> None:
    free = () if "--listen" in arguments or code == 2 else ("--listen", "127.0.0.1:0")
    with pytest.raises(SystemExit) as left:
        main([*arguments, *free])
    said = capsys.readouterr()
    assert left.value.code == code, said.err
    (line,) = said.err.splitlines()
    assert line.startswith("diag-exporter: ")
    assert says in line
    assert said.out == ""


def test_sighup_reads_settings_and_passwords_again(
    exporter: Callable[..., Exporting], tmp_path: Path
) -> None:
    hashed = hasher()
    if hashed is None:
        pytest.skip("neither bcrypt nor a crypt that knows it")
    config, web = tmp_path / "exporter.toml", tmp_path / "web.yml"
    config.write_text(f'web_config = "{web}"\nfast = 0.2\nslow = 0.2\n')
    web.write_text("")
    one = exporter("demo", "--config", str(config)).ready()
    assert one.get("/metrics")[0] == 200

    web.write_text(f"basic_auth_users:\n  p: {hashed(b'x', b'$2b$04$abcdefghijklmnopqrstuu').decode()}\n")
    one.process.send_signal(signal.SIGHUP)
    one.until(lambda: one.get("/metrics")[0] == 401)
    assert "built anew: nothing" in one.said

    web.write_text("basic_auth_users:\n  p: plain\n")
    one.process.send_signal(signal.SIGHUP)
    one.until(lambda: "settings not taken, the old ones stay" in one.said)
    assert one.get("/metrics")[0] == 401

    web.write_text("")
    config.write_text(f'web_config = "{web}"\nfast = 0.2\nslow = 0.2\noff = ["clocks"]\n')
    one.process.send_signal(signal.SIGHUP)
    one.until(lambda: "built anew: demo" in one.said)
    one.until(lambda: "llmdiag_gpu_power_watts" in one.get("/metrics")[1])
    assert "llmdiag_gpu_sm_clock_hertz" not in one.get("/metrics")[1]

    config.write_text('off = ["clcks"]\n')
    one.process.send_signal(signal.SIGHUP)
    one.until(lambda: "no collector is called clcks" in one.said)
    one.until(lambda: "llmdiag_gpu_power_watts" in one.get("/metrics")[1])


def test_start_up_takes_little_memory(exporter: Callable[..., Exporting]) -> None:
    one = exporter("all", "--engine", "http://127.0.0.1:9").ready()
    with contextlib.closing(open(f"/proc/{one.process.pid}/status")) as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(10) == 0
    # `make bench` measures the figures of the design (0.5 s, 60 MB); this only catches a heavy import.
    assert peak < 80_000
