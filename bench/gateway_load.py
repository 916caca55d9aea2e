"""Clients of a queue server, in a process of their own that costs little: raw sockets, pinned to a processor.

    python -m bench.gateway_load PORT put JOBS CONNECTIONS BATCH        puts: so many at once, of each connection
    python -m bench.gateway_load PORT take JOBS CONNECTIONS BATCH       reserve and delete, the same
    python -m bench.gateway_load PORT wake ROUNDS                       a put, while another connection waits
    python -m bench.gateway_load PORT hold CONNECTIONS                  idle connections, for as long as standard input

All but the last print a JSON list of seconds: one for the whole, or one for each round. What is measured begins when
all connections are made. Each answer is looked at; one that was not expected ends the program.
"""

from __future__ import annotations

import gc
import json
import os
import re
import resource
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

BODY: Final = b"x" * 256
PUT: Final = b"put 1024 0 600 %d\r\n%b\r\n" % (len(BODY), BODY)
RESERVE: Final = b"reserve\r\n"
INSERTED: Final = b"INSERTED "
DELETED: Final = b"DELETED\r\n"
SHORTEST_RESERVED: Final = len(b"RESERVED 1 256\r\n") + len(BODY) + 2
"""A first line alone is shorter."""
IDS: Final = re.compile(rb"RESERVED (\d+) %d\r\n" % len(BODY))
REST: Final = 0.002
"""Seconds between two rounds of `wake`, for the server to come to rest."""


class UnexpectedReply(Exception):
    """The server said something else than it should; the text is that."""


def connect(port: int, number: int, opened: ExitStack) -> list[socket.socket]:
    """So many connections that use and watch the tube `bench`."""
    connections = [opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(number)]
    for one in connections:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        expect(b"USING bench", ask(one, b"use bench\r\n"))
        expect(b"WATCHING 2", ask(one, b"watch bench\r\n"))
        expect(b"WATCHING 1", ask(one, b"ignore default\r\n"))
    return connections


def ask(connection: socket.socket, command: bytes) -> bytes:
    """One command, one short answer."""
    connection.sendall(command)
    return connection.recv(4096)


def expect(begins: bytes, answer: bytes) -> None:
    """Raise unless the answer begins so."""
    if not answer.startswith(begins):
        raise UnexpectedReply(answer[:200].decode(errors="replace"))


# ---------------------------------------------------------------- one connection, one command at a time


def put_one_by_one(connection: socket.socket, jobs: int) -> None:
    """Each put waits for the answer to the one before."""
    send, receive = connection.send, connection.recv
    for _ in range(jobs):
        send(PUT)
        expect(INSERTED, receive(64))


def take_one_by_one(connection: socket.socket, jobs: int) -> None:
    """Reserve, delete, each with its answer."""
    send, receive = connection.send, connection.recv
    for _ in range(jobs):
        send(RESERVE)
        answer = whole_reserved(receive(512), receive)
        send(b"delete %b\r\n" % answer.split(b" ", 2)[1])
        expect(DELETED, receive(64))


def whole_reserved(answer: bytes, receive: Callable[[int], bytes]) -> bytes:
    """An answer with its body, if it came in two parts."""
    expect(b"RESERVED ", answer)
    while len(answer) < SHORTEST_RESERVED or not answer.endswith(b"\r\n"):
        if not (more := receive(512)):
            raise UnexpectedReply("the end of the connection")
        answer += more
    return answer


# ---------------------------------------------------------------- many connections


def put_by_many(connections: Sequence[socket.socket], jobs: int) -> None:
    """Each connection has one put under way, until all are done."""
    left = jobs - len(connections)
    for one in connections:
        one.send(PUT)
    with select.epoll() as epoll:
        by_number = register(epoll, connections)
        done = 0
        while done < jobs:
            for number, _ in epoll.poll():
                send, receive = by_number[number]
                expect(INSERTED, receive(64))
                done += 1
                if left > 0:
                    left -= 1
                    send(PUT)


def take_by_many(connections: Sequence[socket.socket], jobs: int) -> None:
    """Each connection reserves and deletes, until all jobs are deleted."""
    left = jobs - len(connections)
    for one in connections:
        one.send(RESERVE)
    with select.epoll() as epoll:
        by_number = register(epoll, connections)
        done = 0
        while done < jobs:
            for number, _ in epoll.poll():
                send, receive = by_number[number]
                answer = receive(512)
                if answer != DELETED:
                    answer = whole_reserved(answer, receive)
                    send(b"delete %b\r\n" % answer.split(b" ", 2)[1])
                    continue
                done += 1
                if left > 0:
                    left -= 1
                    send(RESERVE)


Ends = tuple[Callable[[bytes], int], Callable[[int], bytes]]


def register(epoll: select.epoll, connections: Sequence[socket.socket]) -> dict[int, Ends]:
    """Have epoll watch them; their ends by number."""
    for one in connections:
        epoll.register(one, select.EPOLLIN)
    return {one.fileno(): (one.send, one.recv) for one in connections}


# ---------------------------------------------------------------- pipelined


def put_pipelined(connection: socket.socket, jobs: int, batch: int) -> None:
    """So many puts in one packet, then all their answers."""
    for _ in range(jobs // batch):
        connection.sendall(PUT * batch)
        answers = receive_lines(connection, batch)
        if answers.count(INSERTED) != batch:
            raise UnexpectedReply(answers[:200].decode(errors="replace"))


def take_pipelined(connection: socket.socket, jobs: int, batch: int) -> None:
    """So many reserves in one packet, then so many deletes in one."""
    for _ in range(jobs // batch):
        connection.sendall(RESERVE * batch)
        ids = IDS.findall(receive_lines(connection, 2 * batch))
        connection.sendall(b"".join([b"delete %b\r\n" % one for one in ids]))
        answers = receive_lines(connection, batch)
        if answers.count(DELETED) != batch:
            raise UnexpectedReply(answers[:200].decode(errors="replace"))


def receive_lines(connection: socket.socket, number: int) -> bytes:
    """Receive until so many lines have ended."""
    parts: list[bytes] = []
    ended = 0
    while ended < number:
        part = connection.recv(1 << 16)
        if not part:
            raise UnexpectedReply("the end of the connection")
        if parts and parts[-1].endswith(b"\r") and part.startswith(b"\n"):
            ended += 1
        ended += part.count(b"\r\n")
        parts.append(part)
    return b"".join(parts)


# ---------------------------------------------------------------- what is measured


def timed(port: int, jobs: int, connections: int, batch: int, *, takes: bool) -> list[float]:
    """Seconds that all of it takes."""
    with ExitStack() as opened:
        made = connect(port, connections, opened)
        begun = time.perf_counter()
        if connections > 1:
            (take_by_many if takes else put_by_many)(made, jobs)
        elif batch > 1:
            (take_pipelined if takes else put_pipelined)(made[0], jobs, batch)
        else:
            (take_one_by_one if takes else put_one_by_one)(made[0], jobs)
        return [time.perf_counter() - begun]


def wake(port: int, rounds: int) -> list[float]:
    """For each round, seconds from a put to its job at a connection that waits."""
    taken = []
    with ExitStack() as opened:
        producer, consumer = connect(port, 2, opened)
        for _ in range(rounds):
            consumer.send(RESERVE)
            time.sleep(REST)
            begun = time.perf_counter()
            producer.send(PUT)
            answer = whole_reserved(consumer.recv(512), consumer.recv)
            taken.append(time.perf_counter() - begun)
            expect(INSERTED, producer.recv(64))
            expect(DELETED, ask(consumer, b"delete %b\r\n" % answer.split(b" ", 2)[1]))
    return taken


def hold(port: int, number: int) -> None:
    """Hold idle connections until standard input ends; at its first line, all of them wait for a job."""
    with ExitStack() as opened:
        made = connect(port, number, opened)
        print("connected", flush=True)
        if sys.stdin.readline():
            for one in made:
                one.send(RESERVE)
            print("waiting", flush=True)
            sys.stdin.read()


def main() -> None:
    """Do what the arguments say."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.disable()
    port, what, *numbers = int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
    if what == "hold":
        hold(port, numbers[0])
    else:
        seconds = wake(port, numbers[0]) if what == "wake" else timed(port, *numbers, takes=what == "take")
        print(json.dumps(seconds))


if __name__ == "__main__":
    main()
