"""Handlers that log in processes of their own: they must be at the top level of a module."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time

from peerd import Context, Queue

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
