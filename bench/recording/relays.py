"""A TCP relay that can start to delay what passes, both ways, without reordering it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

__all__ = ["Relay"]


@dataclass(slots=True)
class Relay:
    """``delay_seconds`` (least, most) holds each piece of data back; None passes it on at once."""

    target_port: int
    random: random.Random
    delay_seconds: tuple[float, float] | None = None
    _server: asyncio.Server | None = field(default=None)

    async def start(self, port: int) -> None:
        """Listen on loopback ``port``."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port)

    def stop(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = asyncio.create_task(_send(pieces, writer))
        release = 0.0
        with contextlib.suppress(OSError):
            while True:
                data = await reader.read(65536)
                release = max(release, loop.time() + self._hold())
                pieces.put_nowait((release, data))
                if not data:
                    break
        pieces.put_nowait((release, b""))
        await sender

    def _hold(self) -> float:
        return 0.0 if self.delay_seconds is None else self.random.uniform(*self.delay_seconds)


async def _send(pieces: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while True:
            release, data = await pieces.get()
            await asyncio.sleep(max(0.0, release - loop.time()))
            if not data:
                break
            writer.write(data)
            await writer.drain()
    writer.close()
