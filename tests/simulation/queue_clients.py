"""Queue clients: they speak beanstalkd's protocol to gateway processes, byte by byte, and outlive them.

A client draws what it does next from a seed of its own: it puts, reserves, holds, deletes, releases, buries, touches
and kicks jobs, goes away, and comes back to any gateway process. Healed, the clients delete what is left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from peerd.gateway.server import GatewayConnection
from tests.simulation.history import ClaimKey
from tests.simulation.plan import MAX_UPDATE, QUEUES, TUBE
from tests.simulation.services import SimulatedGatewayServer

if TYPE_CHECKING:
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.world import World

MOST_PUTS: Final = 6
BODY: Final = b'{"seconds": 1.0}'
TTRS: Final = (1, 5, 20, 3600, 3600)
DELAYS: Final = (0, 0, 0, 3, 25)
HOLDS_ON: Final = 0.3
TIMEOUTS: Final = (0, 2, 30, None)
TIMEOUTS_AT_THE_END: Final = (20, None)
FREE_ACTIONS: Final = {
    "put": 8, "reserve": 12, "reserve-job": 2, "delete": 1, "kick": 1, "kick-job": 1, "leave": 1,
}  # fmt: skip
HOLDING_ACTIONS: Final = {
    "delete": 8, "release": 4, "bury": 2, "touch": 3, "reserve": 3, "wait": 4, "leave": 2, "put": 1,
}  # fmt: skip
ENDS_OF_RESERVATIONS: Final = frozenset(("DELETED", "RELEASED", "BURIED"))


class SentCommand(msgspec.Struct, frozen=True):
    verb: str
    job: int
    at: float
    timeout: float = 0.0


class ClientConnection(asyncio.Transport):
    """A connection: its end at the client, and what the gateway process has for a transport."""

    def __init__(self, client: SimulatedQueueClient, process: SimulatedProcess) -> None:
        super().__init__()
        self.client = client
        self.process = process
        self.closed_at: float | None = None
        """When the client has closed it, in virtual time; or when it has noticed that it is closed."""
        self._is_closing = False
        self._protocol = GatewayConnection(server_of(process))
        process.loop.call_soon(self._protocol.connection_made, self)

    @property
    def is_open(self) -> bool:
        return self.closed_at is None and self.process.alive and not self._is_closing

    def send(self, data: bytes) -> None:
        self.process.loop.call_soon(self._receive, data)

    def leave(self) -> None:
        self.closed_at = self.client.world.now
        if self.process.alive:
            self.process.loop.call_soon(self._lose)

    def lease_of(self, job: int) -> int | None:
        """The lease under which the process holds a job for this connection."""
        session: Any = self._protocol._session
        held = None if session is None else session.client.reservations.get(job)
        return None if held is None else int(held.claim.lease)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed_at is None:
            self.client.receive(self, bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The client has read everything at once."""

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.process.loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def _receive(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)

    def _lose(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._protocol.connection_lost(None)


class SimulatedQueueClient:
    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"client-{number}"
        self.is_draining = False
        self.held: dict[int, ClaimKey] = {}
        self.sent: deque[SentCommand] = deque()
        self._random = Random(f"{world.plan.seed} {self.name}")
        self._watches_handlers = self._random.random() < 0.4
        self._puts = 0
        self._connection: ClientConnection | None = None
        self._input = b""
        self._acts_at = self._random.uniform(0.0, 5.0)

    def __repr__(self) -> str:
        return self.name

    def next_event(self) -> float:
        return self._acts_at

    def tick(self) -> None:
        if self._connection is not None and not self._connection.is_open:
            self._lose_connection()
        if self.world.now >= self._acts_at:
            self._act()

    def drain(self) -> None:
        self.is_draining = True
        self._acts_at = min(self._acts_at, self.world.now + self._random.uniform(0.0, 5.0))

    @property
    def waits(self) -> bool:
        """Whether a process that runs owes it a job, if there is one."""
        connection = self._connection
        is_heard = connection is not None and connection.is_open and not connection.process.is_frozen
        return is_heard and bool(self.sent) and self.sent[-1].verb == "reserve"

    def receive(self, connection: ClientConnection, data: bytes) -> None:
        self._input += data
        while (reply := self._next_reply()) is not None:
            self.world.note(f"{self} gets {' '.join(reply)}")
            self._take_reply(connection, self.sent.popleft(), reply)
        if not self.sent:
            self._pause()

    def _act(self) -> None:
        connection = self._connection
        if connection is None:
            self._connect()
        elif self.sent:
            self._leave(connection)  # it has waited long enough
        elif self.is_draining:
            self._drain_next(connection)
        else:
            self._do_anything(connection)

    def _connect(self) -> None:
        found = [process for process in self.world.processes if process.alive and accepts(process)]
        if not found:
            self._acts_at = self.world.now + self._random.uniform(1.0, 3.0)
            return
        connection = self._connection = ClientConnection(self, self._random.choice(found))
        self.world.note(f"{self} connects to {connection.process}")
        self._send(connection, "use", 0, f"use {TUBE}")
        self._send(connection, "watch", 0, f"watch {TUBE}")
        self._send(connection, "ignore", 0, "ignore default")
        if self._watches_handlers:
            self._send(connection, "watch", 0, f"watch {QUEUES[0]}")

    def _leave(self, connection: ClientConnection) -> None:
        self.world.note(f"{self} leaves")
        if self._random.random() < 0.3:
            connection.send(b"quit\r\n")
        connection.leave()
        self._lose_connection()

    def _lose_connection(self) -> None:
        self._connection, self._input = None, b""
        self.held.clear()
        self.sent.clear()
        self._acts_at = self.world.now + self._random.uniform(0.1, 3.0)

    def _pause(self) -> None:
        longest = 1.0 if self.is_draining else self._random.choice((0.1, 1.0, 8.0))
        self._acts_at = self.world.now + self._random.uniform(0.0, longest)

    def _do_anything(self, connection: ClientConnection) -> None:
        actions = HOLDING_ACTIONS if self.held else FREE_ACTIONS
        action = self._random.choices(list(actions), weights=list(actions.values()))[0]
        match action:
            case "leave":
                self._leave(connection)
            case "wait":
                self._acts_at = self.world.now + self._random.uniform(0.0, self._random.choice((10.0, 100.0)))
            case "put" if self._puts < MOST_PUTS:
                self._puts += 1
                self._put(connection)
            case "put" | "reserve":
                self._reserve(connection)
            case "kick":
                self._send(connection, "kick", 0, f"kick {self._random.randint(1, 3)}")
            case _:
                self._to_a_job(connection, action)
                if self._random.random() < 0.2:  # pipelined
                    self._reserve(connection)

    def _to_a_job(self, connection: ClientConnection, verb: str) -> None:
        if not (jobs := list(self.held) or [row.id for row in self.world.rules.rows.values() if row.queue == TUBE]):
            self._reserve(connection)
            return
        job = self._random.choice(jobs)
        arguments = {"release": f" {self._random.choice((10, 2000))} {self._random.choice(DELAYS)}", "bury": " 10"}
        self._send(connection, verb, job, f"{verb} {job}{arguments.get(verb, '')}")

    def _put(self, connection: ClientConnection) -> None:
        pri, delay, ttr = self._random.choice((10, 10, 2000)), self._random.choice(DELAYS), self._random.choice(TTRS)
        self._send(connection, "put", 0, f"put {pri} {delay} {ttr} {len(BODY)}", BODY + b"\r\n")

    def _reserve(self, connection: ClientConnection) -> None:
        timeout = self._random.choice(TIMEOUTS_AT_THE_END if self.is_draining else TIMEOUTS)
        line = "reserve" if timeout is None else f"reserve-with-timeout {timeout}"
        self._send(connection, "reserve", 0, line, timeout=timeout or 0.0)

    def _drain_next(self, connection: ClientConnection) -> None:
        buried = [row.id for row in self.world.rules.rows.values() if row.status == "buried"]
        if self.held and self._random.random() < HOLDS_ON:
            self._acts_at = self.world.now + self._random.uniform(0.0, 3 * MAX_UPDATE)
        elif self.held:
            job = next(iter(self.held))
            self._send(connection, "delete", job, f"delete {job}")
        elif buried:
            self._send(connection, "kick-job", buried[0], f"kick-job {buried[0]}")
        else:
            self._reserve(connection)

    def _send(
        self, connection: ClientConnection, verb: str, job: int, line: str, more: bytes = b"", timeout: float = 0.0
    ) -> None:
        self.world.note(f"{self} sends {line}")
        self.world.history.count(f"client's {verb}")
        self.sent.append(SentCommand(verb, job, self.world.now, timeout))
        self.world.rules.reservations.note_sent(connection, verb, job)
        patience = 300.0 if self.is_draining else 120.0
        self._acts_at = self.world.now + self._random.uniform(patience / 3, patience)
        connection.send(line.encode() + b"\r\n" + more)

    def _next_reply(self) -> list[str] | None:
        line, end, rest = self._input.partition(b"\r\n")
        words = line.decode().split()
        size = int(words[2]) + 2 if end and words[0] == "RESERVED" else 0
        if not end or len(rest) < size:
            return None
        self._input = rest[size:]
        return words

    def _take_reply(self, connection: ClientConnection, sent: SentCommand, reply: list[str]) -> None:
        rules, word = self.world.rules.reservations, reply[0]
        match word:
            case "INSERTED":
                self.world.judge(self.world.rules.judge_accepted, int(reply[1]))
            case "RESERVED":
                job = int(reply[1])
                if (lease := connection.lease_of(job)) is not None:
                    self.held[job] = (job, lease)
                    self.world.judge(rules.judge_granted, connection, (job, lease))
            case "TIMED_OUT":
                self.world.judge(rules.judge_timed_out, sent)
            case "TOUCHED":
                rules.note_touched(self.held.get(sent.job), sent.at, connection)
        claim = self.held.get(sent.job)
        if word in ENDS_OF_RESERVATIONS:
            self.held.pop(sent.job, None)
            self.world.judge(rules.judge_answered, sent, word, claim)
        elif word == "NOT_FOUND" and claim is not None:
            self.held.pop(sent.job)
            self.world.judge(rules.judge_not_found, connection, sent, claim)


def server_of(process: SimulatedProcess) -> SimulatedGatewayServer:
    server: SimulatedGatewayServer = process.shell.service._server  # type: ignore[attr-defined]
    return server


def accepts(process: SimulatedProcess) -> bool:
    return process.link.role == "gateway" and process.ready and server_of(process).is_accepting
