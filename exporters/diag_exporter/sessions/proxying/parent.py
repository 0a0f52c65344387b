"""Starts the workers, starts again those that die, and hands on what they tell.

Processes, not threads: an answer on its way must not wait for a page that is being rendered.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from diag_exporter.sessions.events import Event, Sink
from diag_exporter.sessions.feeds.presets import request_hash
from diag_exporter.sessions.identity import Key
from diag_exporter.sessions.proxying.options import ProxyError, ProxyOptions, listen_address
from diag_exporter.sessions.proxying.wire import Inbox

__all__ = ["RunningProxy"]

_log = logging.getLogger("diag_exporter.proxy")
_READY_SECONDS = 15.0
_RESTART_SECONDS = 1.0
# Before, a stream's headers cannot be sent apart from its first piece.
_AIOHTTP = (3, 12)
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[3])


class RunningProxy:
    """Workers behind one address. ``counters`` and ``gauge`` are safe to read from any thread."""

    def __init__(self, options: ProxyOptions, sink: Sink, key: Key) -> None:
        self.options = options.checked()
        _check_aiohttp()
        self._sink = sink
        self._key = key
        self._lock = threading.Lock()
        self._counters: Counter[tuple[str, str]] = Counter()
        self._stopping = threading.Event()
        self._reserved = _reserve(options.listen)
        self.address: tuple[str, int] = self._reserved.getsockname()[:2]
        self._workers = [_Worker(self, number) for number in range(options.workers)]

    def start(self) -> RunningProxy:
        """Return once every worker listens."""
        for worker in self._workers:
            worker.thread.start()
        end = time.monotonic() + _READY_SECONDS
        for worker in self._workers:
            if not worker.ready.wait(max(0.0, end - time.monotonic())) or worker.inbox.address is None:
                self.stop()
                raise ProxyError(f"the proxy did not come up on {self.options.listen}")
        return self

    def stop(self) -> None:
        """Let running answers end (``drain_seconds``), then end the workers."""
        self._stopping.set()
        for worker in self._workers:
            worker.ask_to_stop()
        end = time.monotonic() + self.options.drain_seconds + 5.0
        for worker in self._workers:
            worker.join(max(0.0, end - time.monotonic()))
        self._reserved.close()

    def counters(self) -> dict[tuple[str, str], int]:
        """Totals since start by (name, label), over all workers, dead ones included."""
        with self._lock:
            return dict(self._counters)

    def gauge(self, name: str) -> int:
        """The sum over the workers that live."""
        return sum(worker.inbox.gauges.get(name, 0) for worker in self._workers)

    def alive(self) -> int:
        """Workers that listen now."""
        return sum(worker.inbox.address is not None for worker in self._workers)

    def worker_pids(self) -> list[int]:
        """Of the workers that listen now."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    @property
    def stopping(self) -> threading.Event:
        """Set once ``stop`` was called."""
        return self._stopping

    def take(self, key: Key) -> None:
        """Have sessions hashed under ``key`` from now on; requests that are read already keep theirs."""
        self._key = key
        for worker in self._workers:
            worker.tell(_line(_told(key)))

    def settings(self) -> bytes:
        """The line a worker starts with. The key goes through the pipe, never on a command line."""
        host, port = self.address
        options = asdict(self.options) | {"listen": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"}
        return _line({"options": options, **_told(self._key)})

    def count(self, name: str, label: str, number: int) -> None:
        """A worker's news."""
        with self._lock:
            self._counters[name, label] += number

    def ended(self, tenant: str, event: Event | None, request_id: str) -> None:
        """A worker's news."""
        self._sink.ended(tenant)
        if event is not None:
            # The hash is of this process only, so that feeds can be joined; a worker has another.
            self._sink.add(event._replace(request=request_hash(request_id)))

    def began(self, tenant: str) -> None:
        """A worker's news."""
        self._sink.began(tenant)


class _Worker:
    """One process and the thread that reads what it tells."""

    def __init__(self, proxy: RunningProxy, number: int) -> None:
        self._proxy = proxy
        self._number = number
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.ready = threading.Event()
        self.inbox = self._new_inbox()
        self.thread = threading.Thread(target=self._run, name=f"proxy-{number}", daemon=True)

    @property
    def pid(self) -> int | None:
        return None if self._process is None or self.inbox.address is None else self._process.pid

    def ask_to_stop(self) -> None:
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()

    def tell(self, line: bytes) -> None:
        """Into the worker's input; one that is ending or starts anew has no need of it."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(line)
                self._process.stdin.flush()

    def join(self, seconds: float) -> None:
        if not self.thread.is_alive():
            return
        self.thread.join(seconds)
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
        self.thread.join(5.0)

    def _new_inbox(self) -> Inbox:
        return Inbox(self._proxy.began, self._proxy.ended, self._proxy.count)

    def _run(self) -> None:
        while not self._proxy.stopping.is_set():
            code = self._once()
            self.ready.set()
            # A supervisor may end parent and workers at once: then this one is not missed.
            if self._proxy.stopping.wait(_RESTART_SECONDS):
                return
            self._proxy.count("worker_restarts", "", 1)
            _log.error("proxy worker %d ended with %s; it is started again", self._number, code)

    def _once(self) -> int | None:
        process = self._started()
        if process is None:
            return None
        assert process.stdout is not None
        for line in process.stdout:
            try:
                self.inbox.take(line)
            except (ValueError, TypeError, KeyError):
                _log.error("proxy worker %d said something unreadable", self._number)
            if self.inbox.address is not None:
                self.ready.set()
        self.inbox.close()
        self.inbox = self._new_inbox()
        return process.wait()

    def _started(self) -> subprocess.Popen[bytes] | None:
        # The same package, whatever the working directory is.
        path = os.pathsep.join(filter(None, [_PACKAGE_ROOT, os.environ.get("PYTHONPATH")]))
        with self._lock:
            if self._proxy.stopping.is_set():
                return None
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "diag_exporter.sessions.proxying.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": path},
            )
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(self._proxy.settings())
                process.stdin.flush()
        return process


def _told(key: Key) -> dict[str, object]:
    return {"secret": key.secret.hex(), "created": key.created}


def _line(said: dict[str, object]) -> bytes:
    return json.dumps(said).encode() + b"\n"


def _check_aiohttp() -> None:
    """Not imported here: only workers need it, and it takes as long as all the rest."""
    try:
        found = version("aiohttp")
    except PackageNotFoundError:
        raise ProxyError("the proxy needs aiohttp: install llm-diag[proxy]") from None
    if tuple(int(part) for part in found.split(".")[:2]) < _AIOHTTP:
        raise ProxyError(f"the proxy needs aiohttp {_AIOHTTP[0]}.{_AIOHTTP[1]} or newer, here is {found}")


def _reserve(listen: str) -> socket.socket:
    """Hold the address without listening, after making sure that nobody else listens there.

    Workers share the port (SO_REUSEPORT), and so could a second proxy: half of the requests would
    silently go to it. A first bind without that option fails where anybody has the port.
    """
    host, port = listen_address(listen)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            if port == 0:
                address = probe.getsockname()
        held = socket.socket(family, kind, protocol)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(address)
    except OSError as error:
        raise ProxyError(f"the proxy cannot listen on {listen}: {error.strerror or error}") from None
    return held
