"""The live view over a bare page that goes away and comes back."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.watch.terminal import Terminal, environment, now_of

pytestmark = pytest.mark.server
PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.25
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="m"}} {tokens}
"""


class Page:
    """A /metrics page on one loopback port that can go away and come back."""

    def __init__(self) -> None:
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    def start(self) -> None:
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = PAGE.format(running=3, tokens=int(time.time() * 100)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", page.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def page() -> Iterator[Page]:
    served = Page()
    yield served
    served.stop()


def test_a_real_terminal_shows_resizes_loses_and_finds_again(page: Page, tmp_path: Path) -> None:
    code = tmp_path / "code"
    url = f"http://127.0.0.1:{page.port}/metrics"
    watch = f"{sys.executable} -m diag watch {url} --every 2s; echo ended $? >{code}; sleep 60"
    with Terminal(["sh", "-c", watch]) as terminal:
        screen = terminal.shows("running")
        assert "No incident in this window" in screen
        assert "GPU use" not in screen
        terminal.resize(60, 24)
        screen = terminal.shows("running")
        assert max(len(line) for line in screen.splitlines()) <= 60
        terminal.resize(110, 40)
        terminal.press("p")
        terminal.shows("paused")
        terminal.press("p")
        page.stop()
        # What is old is not now: the value goes, and no zero takes its place.
        gone = terminal.until(lambda seen: now_of(seen, "running") == "·")
        assert now_of(gone, "waiting") == "·"
        page.start()
        terminal.until(lambda seen: now_of(seen, "running") == "3 requests")
        terminal.press("q")
        ends = time.monotonic() + 20
        while not code.exists():
            assert time.monotonic() < ends
            time.sleep(0.1)
        assert code.read_text() == "ended 0\n"


def test_a_pipe_gets_one_look_and_no_control_characters(page: Page) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "diag", "watch", f"http://127.0.0.1:{page.port}/metrics", "--once"],
        capture_output=True, text=True, timeout=60, check=True, env=environment(),
    )  # fmt: skip
    assert "running" in ran.stdout
    assert "\x1b" not in ran.stdout
