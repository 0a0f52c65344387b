"""Clients: sessions that begin, questions and pauses, and what a client does when an answer is late."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import log

import numpy as np

from diag.model import Floats
from diag.simulate.observed import Call
from diag.simulate.plan import Client, Lengths, ScriptedCall
from diag.simulate.serving.asks import Ask, Owner, Session
from diag.simulate.serving.gateway import RunningGateway
from diag.simulate.serving.loop import Loop
from diag.simulate.serving.reading import reader, stepped

__all__ = ["Draws", "Script", "Traffic"]

_ANSWER_TOKEN_SECONDS = 0.02  # a guess at an answer's pace, only to place the sessions that run already
_BACKOFF_SECONDS = 0.5
_QUESTIONS = 10_000_000  # more than a client ever asks


def _drawn(lengths: Lengths, rng: np.random.Generator, count: int) -> Floats:
    values = np.exp(log(max(lengths.median, 1e-9)) + lengths.sigma * rng.standard_normal(count))
    return np.clip(values, lengths.least, lengths.most)


class Draws:
    """All that is left to chance in a client's requests, drawn before the first of them is sent, so that a
    slower engine changes nobody's questions. One entry a turn, in the order of sessions."""

    __slots__ = ("answers", "heads", "leaves", "messages", "patience", "structured", "thinks")

    def __init__(self, client: Client, seed: list[int], count: int) -> None:
        def dice(concern: int) -> np.random.Generator:
            return np.random.default_rng([*seed, concern])

        self.messages = _drawn(client.message_tokens, dice(1), count).tolist()
        self.answers = _drawn(client.output_tokens, dice(2), count).tolist()
        self.thinks = dice(3).exponential(max(client.think_seconds, 1e-3), count).tolist()
        self.heads = dice(4).random(count).tolist()
        self.leaves = dice(5).random(count).tolist()
        self.patience = dice(6).exponential(max(client.patience_seconds, 1e-3), count).tolist()
        self.structured = dice(7).random(count).tolist()


class Traffic(Owner):
    """One kind of traffic, from ``start`` (before the window) to ``end``."""

    def __init__(
        self, client: Client, number: int, seed: int, loop: Loop, gateway: RunningGateway, calls: list[Call],
        span: tuple[float, float],
    ) -> None:  # fmt: skip
        self.client = client
        self.gateway = gateway
        self.loop = loop
        self.calls = calls
        self._number = number
        self._open = 0
        self._held: deque[Ask] = deque()
        self._limit = stepped(client.concurrency, client.concurrency_steps)
        self._history = reader(client.history_limit_tokens)
        self._prompts = reader(client.prompt_factor)
        self._answers = reader(client.output_factor)
        self._stable = reader(client.head_stable_ratio)
        self._leaving = reader(client.leave_ratio)
        self._grammars = reader(client.structured_ratio)
        for time, _ in client.concurrency_steps:
            loop.at(time, self._pump)
        self._begin([seed, 1, number], *span)

    # Sessions

    def _turn_seconds(self) -> float:
        return self.client.think_seconds + 1.0 + self.client.output_tokens.median * _ANSWER_TOKEN_SECONDS

    def _begin(self, seed: list[int], start: float, end: float) -> None:
        client, dice = self.client, np.random.default_rng([*seed, 0])
        early = self._longest_seconds()
        rate = client.sessions_per_second
        most = max(rate.values)
        times = np.sort(dice.uniform(start - early, end, dice.poisson(most * (end - start + early))))
        keep = dice.random(times.size) * most < rate.over(times)
        turns = np.maximum(np.rint(_drawn(client.turns, dice, times.size)), 1).astype(int)
        places = dice.random(times.size)
        times, turns, places = times[keep], turns[keep], places[keep]
        firsts = np.concatenate([[0], np.cumsum(turns)])
        self.draws = Draws(client, seed, int(firsts[-1]))
        for index, time in enumerate(times.tolist()):
            session = Session(
                f"{client.tenant}-{self._number}-{index}", int(firsts[index]), int(turns[index])
            )
            if time >= start:
                self.loop.at(time, self._want, session)
            else:
                self._catch_up(session, start, start - time, float(places[index]))

    def _longest_seconds(self) -> float:
        """How long before the start a session may have begun that still goes on."""
        turns = self.client.turns
        longest = min(turns.median * float(np.exp(2.6 * turns.sigma)), float(turns.most))
        return min(longest, 400.0) * self._turn_seconds()

    def _catch_up(self, session: Session, start: float, age: float, place: float) -> None:
        """Put a session that began ``age`` seconds ago where it would be by now."""
        span = self._turn_seconds()
        session.turn = int(age / span) + 1
        if session.turn >= session.turns:
            return
        draws, first = self.draws, session.first
        said = sum(draws.messages[first : first + session.turn]) + sum(
            draws.answers[first : first + session.turn]
        )
        session.history = int(min(said, self._history(start)))
        self.loop.at(start + place * span, self._want, session)

    # Requests

    def _want(self, session: Session) -> None:
        """The client wants the session's next answer, now."""
        ask = self._ask(session)
        place, now, client = session.first + session.turn, self.loop.now, self.client
        if self.draws.leaves[place] < self._leaving(now):
            self.loop.at(now + self.draws.patience[place], self.gateway.leave, ask)
        if client.timeout_seconds > 0:
            self.loop.at(now + client.timeout_seconds, self.gateway.leave, ask)
        self._held.append(ask)
        self._pump()

    def _pump(self) -> None:
        """Send what is held back as far as the client's own limit allows."""
        limit = self._limit(self.loop.now)
        while self._held and (limit <= 0 or self._open < limit):
            ask = self._held.popleft()
            if not ask.closed:
                self._open += 1
                ask.sent = True
                self.gateway.send(ask)

    def _ask(self, session: Session) -> Ask:
        client, draws, now = self.client, self.draws, self.loop.now
        place = session.first + session.turn
        limit = self._history(now)
        if session.history > limit:
            session.history = int(limit)
            session.epoch += 1
        message = max(round(draws.messages[place] * self._prompts(now)), 1)
        call = Call(
            len(self.calls), client.tenant, session.name, session.turn, "",
            client.head_tokens + session.history + message, client.head_tokens, session.history, now,
            structured=draws.structured[place] < self._grammars(now), adapter=client.adapter,
        )  # fmt: skip
        self.calls.append(call)
        answer = max(round(draws.answers[place] * self._answers(now)), 1)
        ask = Ask(call, session, answer, self._number * _QUESTIONS + place)
        ask.cut = draws.answers[place] >= client.output_tokens.most
        ask.priority, ask.leave_seen, ask.owner = client.priority, client.leave_seen, self
        if draws.heads[place] < self._stable(now):
            ask.head_key = f"{client.head}|{client.adapter}" if client.head_tokens else ""
            ask.session_key = f"{session.name}#{session.epoch}"
        else:
            ask.session_key = f"unlike {call.number}"
        return ask

    def over(self, ask: Ask) -> None:
        """``ask`` is closed: say the next thing, try again, or go."""
        if ask.sent:
            self._open -= 1
            self._pump()
        call, session = ask.call, ask.session
        if call.status == "ok":
            session.history += (
                call.prompt_tokens - call.head_tokens - call.history_tokens + call.output_tokens
            )
        elif call.http_status == 400:
            return
        elif session.tries < self.client.retries:
            session.tries += 1
            self.loop.at(call.closed + _BACKOFF_SECONDS * 2.0**session.tries, self._want, session)
            return
        think = self.draws.thinks[session.first + session.turn]
        session.tries = 0
        session.turn += 1
        if session.turn < session.turns:
            self.loop.at(call.closed + think, self._want, session)


class Script(Owner):
    """Requests that are given, not drawn."""

    def __init__(
        self, script: tuple[ScriptedCall, ...], loop: Loop, gateway: RunningGateway, calls: list[Call]
    ) -> None:
        self._loop = loop
        self._gateway = gateway
        self._calls = calls
        self._sessions: dict[str, Session] = {}
        self._numbers: Iterator[int] = iter(range(-2, -len(script) - 3, -1))
        self._next: dict[str, deque[ScriptedCall]] = {}
        for given in script:
            if given.think_seconds < 0:
                loop.at(given.time, self._send, given)
            else:
                self._next.setdefault(given.session, deque()).append(given)

    def _send(self, given: ScriptedCall) -> None:
        question = next(self._numbers)
        name = given.session or f"{given.tenant}-s{-question}"
        session = self._sessions.setdefault(name, Session(name, 0, 1))
        call = Call(
            len(self._calls), given.tenant, name, given.turn, "", given.prompt_tokens, given.head_tokens,
            given.history_tokens, self._loop.now,
        )  # fmt: skip
        self._calls.append(call)
        ask = Ask(call, session, given.output_tokens, question)
        ask.priority, ask.leave_seen, ask.owner = given.priority, given.leave_seen, self
        ask.head_key = given.head if given.head_tokens else ""
        ask.session_key = f"{name}#0"
        if given.leave_seconds > 0:
            self._loop.at(self._loop.now + given.leave_seconds, self._gateway.leave, ask)
        self._gateway.send(ask)

    def over(self, ask: Ask) -> None:
        """``ask`` is closed: its session's next call follows if it was to wait for that."""
        following = self._next.get(ask.session.name)
        if following:
            given = following.popleft()
            self._loop.at(self._loop.now + given.think_seconds, self._send, given)
