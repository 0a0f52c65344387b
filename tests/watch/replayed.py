"""A real Prometheus in which a recorded incident happens now, its end still to come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from diag.signals.frame import RawSeries
from diag.simulate import load
from tests.rules.replay import stored
from tests.rules.servers import binary, free_port, running

__all__ = ["Replayed", "replayed"]


@dataclass(slots=True)
class Replayed:
    """``onset`` and ``ends``: unix seconds of this replay; ``leading``: the recording's label."""

    url: str
    onset: float
    ends: float
    leading: str
    _command: list[str]
    _log: Path
    _stack: ExitStack

    def start(self) -> None:
        """Run the server, again on the same port, and wait until it answers."""
        self._stack.enter_context(running(self._command, self.url, log=self._log))

    def stop(self) -> None:
        """End the server's process."""
        self._stack.close()


@contextmanager
def replayed(recording: Path, folder: Path, *, since_onset_seconds: float) -> Iterator[Replayed]:
    """``recording`` moved in time so that its onset was ``since_onset_seconds`` ago."""
    bundle = load(recording)
    shift = time.time() - since_onset_seconds - float(bundle.label["onset"])
    data = folder / "data"
    later = (RawSeries(one.labels, one.times + shift, one.values) for one in bundle.series())
    stored(data, folder / "raw.om", (one for one in later if one.times.size))
    config = folder / "prometheus.yml"
    config.write_text("{}\n", encoding="utf-8")
    port = free_port()
    command = [
        binary("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with ExitStack() as stack:
        found = Replayed(
            f"http://127.0.0.1:{port}", float(bundle.label["onset"]) + shift, bundle.window.end + shift,
            str(bundle.label["leading"]), command, folder / "prometheus.log", stack,
        )  # fmt: skip
        found.start()
        yield found
