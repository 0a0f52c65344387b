"""The live view in a real terminal: tmux runs it, resizes it, presses keys, and takes its source away."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

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


class Terminal:
    """A tmux session of its own server."""

    def __init__(self, tmux: str, command: list[str], environment: dict[str, str]) -> None:
        self._base = [tmux, "-L", f"diag-{uuid.uuid4().hex[:8]}"]
        subprocess.run(
            [*self._base, "-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "40", *command],
            check=True, env=environment, timeout=20,
        )  # fmt: skip

    def shows(self, text: str, seconds: float = 40.0) -> str:
        """Wait until ``text`` is on the screen; the screen."""
        return self.until(lambda seen: text in seen, seconds)

    def until(self, true: Callable[[str], bool], seconds: float = 60.0) -> str:
        """Wait until the screen is as wanted; the screen."""
        ends = time.monotonic() + seconds
        while True:
            seen = self._tmux("capture-pane", "-p")
            if true(seen):
                return seen
            assert time.monotonic() < ends, f"it never came:\n{seen}"
            time.sleep(0.2)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def close(self) -> None:
        subprocess.run([*self._base, "kill-server"], check=False, capture_output=True, timeout=20)

    def _tmux(self, *arguments: str) -> str:
        ran = subprocess.run(
            [*self._base, *arguments], check=True, capture_output=True, text=True, timeout=20
        )
        return ran.stdout


def _now(screen: str, name: str) -> str:
    """What stands in the column "now" of a signal's row: between its course and what was before."""
    row = next((line for line in screen.splitlines() if line.startswith(name)), "")
    columns = [part for part in re.split(r"\s{2,}", row.strip()) if part]
    return columns[2] if len(columns) > 2 else ""


@pytest.fixture
def tmux() -> str:
    found = shutil.which("tmux")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("tmux is not installed: apt-get install tmux")
        pytest.skip("tmux is not installed")
    return found


@pytest.fixture
def page() -> Iterator[Page]:
    served = Page()
    yield served
    served.stop()


def environment() -> dict[str, str]:
    return {**os.environ, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}


def test_a_real_terminal_shows_resizes_loses_and_finds_again(tmux: str, page: Page, tmp_path: Path) -> None:
    code = tmp_path / "code"
    url = f"http://127.0.0.1:{page.port}/metrics"
    watch = f"{sys.executable} -m diag watch {url} --every 2s; echo ended $? >{code}; sleep 60"
    terminal = Terminal(tmux, ["sh", "-c", watch], environment())
    try:
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
        gone = terminal.until(lambda seen: _now(seen, "running") == "·")
        assert _now(gone, "waiting") == "·"
        page.start()
        terminal.until(lambda seen: _now(seen, "running") == "3 requests")
        terminal.press("q")
        ends = time.monotonic() + 20
        while not code.exists():
            assert time.monotonic() < ends
            time.sleep(0.1)
        assert code.read_text() == "ended 0\n"
    finally:
        terminal.close()


def test_a_pipe_gets_one_look_and_no_control_characters(page: Page) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "diag", "watch", f"http://127.0.0.1:{page.port}/metrics", "--once"],
        capture_output=True, text=True, timeout=60, check=True, env=environment(),
    )  # fmt: skip
    assert "running" in ran.stdout
    assert "\x1b" not in ran.stdout
