"""A plan's whole service, run from before the window to its end."""

from __future__ import annotations

from math import isnan

import numpy as np

from diag.simulate.observed import Call, Run
from diag.simulate.plan import Gpu, Plan, Replica, Restart
from diag.simulate.serving.cards import RunningCard
from diag.simulate.serving.clients import Script, Traffic
from diag.simulate.serving.fabric import Exchange, Member
from diag.simulate.serving.gateway import RunningGateway
from diag.simulate.serving.hosts import RunningHost
from diag.simulate.serving.loop import Loop
from diag.simulate.serving.server import Server

__all__ = ["run"]

_TICK_SECONDS = 5.0
_WARM_TURNS = 3.0  # thinking times before the window, so that queues and caches are as usual at its start
_NETWORK, _FABRIC, _HOSTS, _FRONTS = 2, 3, 4, 5  # concerns with dice of their own


def run(plan: Plan, *, single: bool = False) -> Run:
    """Run ``plan``; the same plan gives the same run. ``single``: one step at a time, for tests."""
    return _Service(plan, single).run()


def _warm_seconds(plan: Plan) -> float:
    if not plan.clients:
        return 0.0
    thinks = max(client.think_seconds for client in plan.clients)
    return _TICK_SECONDS * round(min(max(_WARM_TURNS * thinks, 90.0), 240.0) / _TICK_SECONDS)


class _Service:
    def __init__(self, plan: Plan, single: bool) -> None:
        self.plan = plan
        self.times = np.arange(0.0, plan.seconds + 0.5 * plan.step_seconds, plan.step_seconds)
        self.loop = Loop(-_warm_seconds(plan))
        self.calls: list[Call] = []
        self.restarts: list[tuple[str, float, float]] = []
        self.log: list[tuple[float, str, str]] = []
        self.gateway = RunningGateway(plan.gateway, self.loop, self._dice(_NETWORK))
        self.hosts = self._make_hosts()
        self.cards = self._make_cards()
        self.servers = [
            self._make_server(replica, single, index) for index, replica in enumerate(plan.replicas)
        ]
        self.gateway.servers = self.servers
        if plan.fabric is not None:
            exchange = Exchange(plan.fabric, self.loop, self._dice(_FABRIC))
            for server in self.servers:
                server.meet(Member(exchange, server))

    def _dice(self, *concern: int) -> np.random.Generator:
        return np.random.default_rng([self.plan.seed, *concern])

    def _make_hosts(self) -> dict[str, RunningHost]:
        plan, hosts = self.plan, {}
        flaps = plan.fabric.flaps if plan.fabric is not None else ()
        for index, host in enumerate(plan.hosts):
            engines = sum(replica.host == host.name for replica in plan.replicas)
            downs = [start for start, _, name in flaps if name == host.name]
            hosts[host.name] = RunningHost(host, engines, downs, self.loop.now, self._dice(_HOSTS, index))
        return hosts

    def _make_cards(self) -> dict[tuple[str, int], RunningCard]:
        acting = dict(self.plan.cards)
        owners = {(replica.host, gpu): replica for replica in self.plan.replicas for gpu in replica.gpus}
        cards = {}
        for host, index in sorted({*acting, *owners}):
            owner = owners.get((host, index))
            share = 0.85 if owner is None else owner.machine.full_watts_share
            name = "" if owner is None else owner.name
            gpu = acting.get((host, index), Gpu())
            cards[host, index] = RunningCard(host, index, name, gpu, share, self.loop.now)
        return cards

    def _make_server(self, replica: Replica, single: bool, index: int) -> Server:
        cards = [self.cards[replica.host, gpu] for gpu in replica.gpus]
        host, dice = self.hosts[replica.host], self._dice(_FRONTS, index)
        return Server(replica, self.loop, self.gateway.finished, host, cards, dice, single=single)

    def run(self) -> Run:
        plan, loop = self.plan, self.loop
        start = loop.now
        for number, client in enumerate(plan.clients):
            Traffic(client, number, plan.seed, loop, self.gateway, self.calls, (start, plan.seconds))
        Script(plan.script, loop, self.gateway, self.calls)
        for server in self.servers:
            self._befall(server)
        loop.at(start + _TICK_SECONDS, self._tick)
        for time in self.times.tolist():
            loop.at(time, self._scrape, time)
        loop.run(max(plan.seconds, float(self.times[-1])))
        return self._observed()

    # What happens

    def _befall(self, server: Server) -> None:
        for time, seconds in server.plan.pauses:
            self.loop.at(time, self._pause, server, seconds)
        for begin, end in server.plan.hangs:
            self.loop.at(begin, self._hang, server, end - begin)
        for restart in server.plan.restarts:
            self.loop.at(restart.time, self._stop, server, restart)

    def _pause(self, server: Server, seconds: float) -> None:
        if not server.down:
            server.pause(seconds)

    def _hang(self, server: Server, seconds: float) -> None:
        if not server.down:
            server.hang(seconds)

    def _stop(self, server: Server, restart: Restart) -> None:
        if server.down:
            return
        now, up = self.loop.now, restart.time + restart.down_seconds
        self.restarts.append((server.name, now, up))
        self._write_stop(server, restart)
        self.gateway.lose(server.stop())
        self.loop.at(up, self._start, server, restart)

    def _start(self, server: Server, restart: Restart) -> None:
        server.start(restart.settings)
        self._say(self.loop.now, server, "Application startup complete.")

    def _tick(self) -> None:
        now = self.loop.now
        needs = dict.fromkeys(self.hosts, 0.0)
        busy: dict[str, tuple[float, bool]] = {}
        for server in self.servers:
            ratio = server.busy_ratio(_TICK_SECONDS)
            busy[server.name] = ratio, server.spins()
            needs[server.host] += server.cpus(ratio)
        for card in self.cards.values():
            card.tick(now, _TICK_SECONDS, *busy.get(card.engine, (0.0, False)))
        for name, host in self.hosts.items():
            host.tick(now, _TICK_SECONDS, needs[name])
        for server in self.servers:
            server.tick(_TICK_SECONDS)
        self.loop.at(now + _TICK_SECONDS, self._tick)

    def _scrape(self, time: float) -> None:
        for server in self.servers:
            server.scrape()
        for card in self.cards.values():
            card.scrape(time)
        for host in self.hosts.values():
            host.scrape(time)
        self.gateway.scrape()

    # What is left

    def _say(self, time: float, server: Server, text: str) -> None:
        self.log.append((time, server.name, text))

    def _write_stop(self, server: Server, restart: Restart) -> None:
        now, each = self.loop.now, restart.down_seconds / (restart.attempts + 1)
        port = server.name.rpartition(":")[2]
        if restart.reason == "deploy":
            self._say(now, server, "Shutting down")
        elif restart.reason == "xid":
            self._say(now, server, "torch.AcceleratorError: CUDA error: unspecified launch failure")
        if restart.reason != "deploy":
            self._say(
                now, server, "EngineCore encountered a fatal error; vllm.v1.engine.exceptions.EngineDeadError"
            )
        for attempt in range(restart.attempts):
            text = "RuntimeError: Engine core initialization failed."
            if restart.reason == "bind":
                where = f"error while attempting to bind on address ('0.0.0.0', {port})"
                text = f"OSError: [Errno 98] {where}: address already in use"
            self._say(now + each * (attempt + 0.6), server, text)

    def _observed(self) -> Run:
        by_name = {server.name: server for server in self.servers}
        calls: list[Call] = []
        for call in self.calls:
            if call.sent < 0.0:
                continue
            if call.status == "" and not isnan(call.first_token):
                self.gateway.answer(call, by_name.get(call.replica))
            call.number = len(calls)
            calls.append(call)
        gateway = np.array(self.gateway.rows, dtype=np.float64)
        return Run(
            plan=self.plan,
            times=self.times,
            engines=[server.replica.tally.engine(server.name) for server in self.servers],
            cards=[card.observed() for card in self.cards.values()],
            nodes=[host.observed() for host in self.hosts.values()],
            calls=calls,
            restarts=self.restarts,
            log=sorted(self.log),
            gateway_in_flight=gateway[:, 0],
            gateway_waiting=gateway[:, 1],
            gateway_504=gateway[:, 2] - gateway[0, 2],
        )
