"""Queue clients under fire: they put, reserve, delete, release and bury jobs at all nodes, and record what they see.

    PEERD_HISTORY=folder python -m tests.faults.queue_clients PORT… --jobs 200 --seconds 20

Each client is a thread with one connection at a time. When all jobs are put it deletes what is left, until it is
killed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import threading
import time
from collections.abc import Sequence
from typing import Final

from tests.faults import history
from tests.faults.case import JOB_KEY
from tests.gateway.beanstalk_connection import BeanstalkConnection, members

CLIENTS: Final = 8
TUBE: Final = b"jobs-of-clients"
TTRS: Final = (3, 20, 600)
PATIENCE: Final = 12.0
"""Seconds that a client waits for an answer before it closes the connection: its process is frozen, or worse."""
RESERVE_TIMEOUT: Final = 1
PAUSE: Final = 0.3
"""Seconds before a client connects again."""
ENDS: Final = {"delete": 75, "release": 10, "bury": 5, "leave": 5, "sleep": 5}
"""What a client does with a job that it holds, and how often."""
ANSWERS: Final = {b"DELETED\r\n": "deleted", b"RELEASED\r\n": "released", b"BURIED\r\n": "buried"}


class JobsToPut:
    """The jobs that the clients put, at a rate.

    Args:
        number: how many.
        seconds: in which they are put.
    """

    def __init__(self, number: int, seconds: float) -> None:
        self._numbers = itertools.count(1)
        self._number = number
        self._seconds = seconds
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._taken = 0

    @property
    def is_over(self) -> bool:
        """Whether each of them was given to a client.

        Not whether the time has passed: nodes that start slowly take their first jobs after it.
        """
        return self._taken >= self._number

    def next_key(self) -> str | None:
        """The key of the next job, if one is due."""
        with self._lock:
            due = self._number * min(1.0, (time.monotonic() - self._began) / self._seconds)
            if self._taken >= due:
                return None
            self._taken += 1
            return f"{JOB_KEY}{next(self._numbers)}"


class RecordingClient:
    """One client.

    Args:
        number: its number.
        ports: of the gateway processes.
        to_put: shared by all clients.
        rng: what it does.
    """

    def __init__(self, number: int, ports: Sequence[int], to_put: JobsToPut, rng: random.Random) -> None:
        self._number = number
        self._ports = ports
        self._to_put = to_put
        self._rng = rng
        self._connections = itertools.count(1)

    def run(self) -> None:
        """Connect again and again; it does not return."""
        while True:
            name = f"{os.getpid()}-{self._number}-{next(self._connections)}"
            try:
                with BeanstalkConnection(("127.0.0.1", self._rng.choice(self._ports))) as connection:
                    try:
                        self._use(connection, name)
                    finally:
                        history.record("closed", connection=name)
            except OSError:  # it refuses, does not answer, or has ended
                time.sleep(PAUSE)

    def _use(self, connection: BeanstalkConnection, name: str) -> None:
        answer = connection.ask(b"stats\r\n", PATIENCE)
        if not answer.startswith(b"OK "):
            return
        history.record("opened", connection=name, server=int(members(answer)["pid"]))
        connection.use(TUBE)
        connection.watch_only(TUBE)
        while self._rng.random() > 0.02:
            key = self._to_put.next_key()
            if key is not None and not self._put(connection, name, key):
                return
            answer = connection.ask(b"reserve-with-timeout %d\r\n" % RESERVE_TIMEOUT, PATIENCE)
            if answer.startswith(b"RESERVED "):
                job = int(answer.split()[1])
                history.record("reserved", task=job, connection=name)
                if not self._end(connection, name, job, json.loads(answer.split(b"\r\n")[1])["ttr"]):
                    return
            elif answer != b"TIMED_OUT\r\n":
                return
            elif self._to_put.is_over or self._rng.random() < 0.1:
                connection.ask(b"kick 10\r\n", PATIENCE)

    def _put(self, connection: BeanstalkConnection, name: str, key: str) -> bool:
        """Put a job; whether that was answered."""
        ttr = self._rng.choice(TTRS)
        body = json.dumps({"key": key, "ttr": ttr}).encode()
        try:
            delay = self._rng.choice((0, 0, 0, 2))
            answer = connection.ask(b"put 10 %d %d %d\r\n%b\r\n" % (delay, ttr, len(body), body), PATIENCE)
        except OSError as error:
            history.record("unsure", key=key, error=str(error)[:200])
            raise
        if not answer.startswith(b"INSERTED "):
            history.record("unsure", key=key, error=answer.decode())
            return False
        history.record("inserted", task=int(answer.split()[1]), key=key, connection=name)
        return True

    def _end(self, connection: BeanstalkConnection, name: str, job: int, ttr: int) -> bool:
        """Hold a job for a while and end its reservation; whether the client goes on with this connection."""
        action = "delete" if self._to_put.is_over else self._rng.choices(list(ENDS), weights=list(ENDS.values()))[0]
        time.sleep(0.0 if self._to_put.is_over else self._rng.choice((0.0, 0.02, 0.2, 2.0)))
        if action == "leave":
            return False
        if action == "sleep":
            time.sleep(min(ttr + 1.0, 5.0))
            action = "delete"
        arguments = {"delete": b"", "release": b" 10 1", "bury": b" 10"}[action]
        history.record("finishing", task=job, connection=name, action=action)
        answer = connection.ask(b"%b %d%b\r\n" % (action.encode(), job, arguments), PATIENCE)
        history.record("finished", task=job, connection=name, action=action, outcome=ANSWERS.get(answer, ""))
        return answer in ANSWERS or answer == b"NOT_FOUND\r\n"


def main() -> None:
    """Run all clients, until it is killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.queue_clients")
    parser.add_argument("ports", nargs="+", type=int)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    to_put = JobsToPut(given.jobs, given.seconds)
    clients = [
        RecordingClient(number, given.ports, to_put, random.Random(f"{given.seed}/{number}"))
        for number in range(CLIENTS)
    ]
    threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
