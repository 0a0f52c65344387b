"""The client's side: conversations that come and go, sessions that grow, sessions over a document."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.recording.clients import Answer, Ask, ask

__all__ = ["Load", "Mix", "Record"]

# Bounds, so that a mistake in a scenario cannot flood the machine.
_MOST_REQUESTS = 4000
_MOST_OPEN = 400


@dataclass(frozen=True, slots=True)
class Mix:
    """What the clients do at one moment; rates are new sessions per second, pairs are (least, most)."""

    tenant_rates: tuple[float, ...] = (0.125, 0.125, 0.125, 0.125)
    turns: tuple[int, int] = (2, 3)
    prompt_tokens: tuple[int, int] = (100, 400)
    answer_tokens: tuple[int, int] = (150, 300)
    think_seconds: tuple[float, float] = (1.0, 3.0)
    abandoned_ratio: float = 0.0
    trimmed: bool = True
    round_robin: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """One request as sent, with the answer that is still being filled."""

    request_id: str
    session: str
    tenant: str
    instance: str
    answer: Answer


@dataclass(slots=True)
class Load:
    """``mix`` maps seconds since the onset (negative before it) to what the clients do then."""

    mix: Callable[[float], Mix]
    onset_unix: float
    ports: tuple[int, ...]
    random: random.Random
    system_tokens: int = 300
    growing_sessions: int = 0
    document_sessions: int = 0
    document_tokens: int = 2000
    records: list[Record] = field(default_factory=list)
    refused: int = 0
    _sessions: int = 0
    _system: str = ""
    _open: int = 0

    async def run(self, until_unix: float) -> None:
        """Send until ``until_unix`` and return then, whatever is still under way."""
        self._system = self._words(self.system_tokens)
        loops = [self._arrivals()] if not self.document_sessions else []
        loops += [self._growing() for _ in range(self.growing_sessions)]
        loops += [self._documents() for _ in range(self.document_sessions)]
        tasks = [asyncio.create_task(loop) for loop in loops]
        await asyncio.sleep(max(0.0, until_unix - time.time()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def now(self) -> Mix:
        """The mix of this moment."""
        return self.mix(time.time() - self.onset_unix)

    async def _arrivals(self) -> None:
        # Thinning: candidates at the highest rate, each kept with the share the moment's rate has of it.
        highest = max(sum(self.mix(float(second)).tenant_rates) for second in range(-150, 200, 5))
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self.random.expovariate(highest))
                rates = self.now().tenant_rates
                if self.random.random() * highest < sum(rates):
                    tenant = self.random.choices("abcdefgh"[: len(rates)], rates)[0]
                    group.create_task(self._conversation(f"t-{tenant}"))

    async def _conversation(self, tenant: str) -> None:
        session, history = self._new_session(), [self._system]
        for _ in range(self.random.randint(*self.now().turns)):
            history.append(self._words(self.random.randint(*self.now().prompt_tokens)))
            answer = await self._send(session, tenant, history)
            if answer is None or answer.status != "ok":
                return
            history.append(answer.text)
            await asyncio.sleep(self.random.uniform(*self.now().think_seconds))

    async def _growing(self) -> None:
        session, history = self._new_session(), [self._system]
        await asyncio.sleep(self.random.uniform(0, 4))
        while True:
            history.append(self._words(self.random.randint(300, 500)))
            if self.now().trimmed:
                history = [history[0], *history[1:][-3:]]
            answer = await self._send(session, "t-agents", history)
            history.append(answer.text if answer and answer.status == "ok" else self._words(20))
            await asyncio.sleep(self.random.uniform(2.0, 4.0))

    async def _documents(self) -> None:
        await asyncio.sleep(self.random.uniform(0, 6))
        while True:
            session, history = self._new_session(), [self._words(self.document_tokens)]
            for _ in range(self.random.randint(12, 18)):
                history.append(self._words(80))
                answer = await self._send(session, "t-docs", history)
                history.append(answer.text if answer and answer.status == "ok" else self._words(20))
                await asyncio.sleep(self.random.uniform(*self.now().think_seconds))

    async def _send(self, session: str, tenant: str, history: list[str]) -> Answer | None:
        if len(self.records) >= _MOST_REQUESTS or self._open >= _MOST_OPEN:
            self.refused += 1
            return None
        mix, number = self.now(), len(self.records)
        turn = number if mix.round_robin else int(session[1:])
        place = turn % len(self.ports)
        request = Ask(
            port=self.ports[place],
            request_id=f"r{number:05d}",
            messages=tuple({"role": "user", "content": text} for text in history),
            answer_tokens=self.random.randint(*mix.answer_tokens),
            leave_after_seconds=0.5 if self.random.random() < mix.abandoned_ratio else None,
        )
        answer = Answer(sent_unix=time.time())
        self.records.append(Record(request.request_id, session, tenant, f"vllm-{place}:8000", answer))
        self._open += 1
        try:
            await ask(request, answer)
        finally:
            self._open -= 1
        return answer

    def _new_session(self) -> str:
        self._sessions += 1
        return f"s{self._sessions:03d}"

    def _words(self, count: int) -> str:
        return " ".join(f"w{self.random.randrange(2000):04d}" for _ in range(count))
