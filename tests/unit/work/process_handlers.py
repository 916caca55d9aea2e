"""Handlers that tests run in processes of their own: they must be at the top level of a module."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from peerd import Context, Dead, Queue, Retry

apart = Queue("apart")


@apart.task(process=True)
def double(ctx: Context, n: int) -> int:
    print("printed text goes to the log, not to the result")  # noqa: T201
    ctx.progress(0.5, f"on {ctx.node}")
    return 2 * n


@apart.task(process=True, discard_on=(KeyError,))
def raises(kind: str) -> None:
    raise {"value": ValueError, "key": KeyError}[kind]("boom")


class WithoutText(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@apart.task(process=True)
def raises_without_text() -> None:
    raise WithoutText


@apart.task(process=True)
def returns_outcome(kind: str) -> object:
    if kind == "retry":
        raise Retry("7s", "later")
    return Dead("never")


@apart.task(process=True)
def leaves(status: int) -> None:
    os._exit(status)


@apart.task(process=True)
def exits() -> None:
    sys.exit(4)


@apart.task(process=True)
def starts_a_child(pids: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    Path(pids + ".new").write_text(f"{os.getpid()} {child.pid}")
    Path(pids + ".new").rename(pids)
    time.sleep(1000)


@apart.task(process=True)
def large(size: int) -> str:
    return "x" * size


talking = Queue("talking")
log = logging.getLogger("talking.app")


@talking.task(process=True)
def says(ctx: Context) -> None:
    print("printed")  # noqa: T201
    log.error("recorded %s", 1, extra={"part": 7})
    ctx.log.info("bound", size=3)
    sys.stderr.write("no end of the line")


@talking.task(process=True)
def says_too_much(ctx: Context, lines: int) -> None:
    for number in range(lines):
        print(f"line {number}")  # noqa: T201


@talking.task(process=True)
def says_and_dies() -> None:
    print("the last words")  # noqa: T201
    time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGKILL)
