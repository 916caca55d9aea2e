"""The first lines of every process that the master starts: `python -P -m peerd.child FD MASTER`.

A fresh interpreter, so new code is always read anew. FD is its end of the link with the master, whose first frame is
the plan; MASTER is the master's process id.
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import signal
import socket
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

from peerd.runtime.messages.frames import receive
from peerd.runtime.process import exit_codes, gc_tuning
from peerd.runtime.process.import_blocker import hidden
from peerd.runtime.process.import_path import add_project
from peerd.runtime.process.link import Link, Place
from peerd.runtime.process.pdeathsig import die_with_parent
from peerd.runtime.process.service import Service
from peerd.runtime.process.service_runner import live
from peerd.runtime.process.uncaught_exceptions import show, show_failed_boot, words


def main(fd: int, master: int) -> int:
    """Live the life that the plan on the link describes; return the exit status."""
    end = socket.socket(fileno=fd)
    end.set_inheritable(False)
    if not die_with_parent(signal.SIGTERM, master):
        return exit_codes.MASTER_LOST
    faulthandler.enable()
    gc_tuning.wait()
    plan: Mapping[str, Any] | None = receive(end)
    if plan is None:
        return exit_codes.MASTER_LOST
    _start_logging(plan)
    link = Link(end, _place(plan), _sockets(plan))
    link.listen()
    _write_whole_lines()
    _set_title(link)
    status = _run(plan, link)
    link.leave(status)
    return status


def _start_logging(plan: Mapping[str, Any]) -> None:
    with hidden("rich"):  # with which structlog paints tracebacks; in our log they are text
        from peerd.runtime.observability.log_messages import start_logging  # noqa: PLC0415 - the first that loads structlog
    start_logging("info", plan["log_format"], node=plan["node"], slot=plan["slot"])


def _place(plan: Mapping[str, Any]) -> Place:
    return Place(
        slot=plan["slot"],
        kind=plan["kind"],
        role=plan["role"],
        node=plan["node"],
        generation=plan["generation"],
        grace=plan["grace"],
        give_back=plan["give_back"],
        hang_after=plan["hang_after"],
        log_file=plan["log_file"],
        run_directory=Path(plan["run_directory"]),
    )


def _write_whole_lines() -> None:
    """What user code prints belongs into the log at once, and a line at a time: other processes write there too.

    (Unbuffered, as PYTHONUNBUFFERED wants it, a line and its end are two writes, with room for others between them.)
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


def _sockets(plan: Mapping[str, Any]) -> dict[str, socket.socket]:
    found = {name: socket.socket(fileno=number) for name, number in plan["sockets"].items()}
    for one in found.values():
        one.set_inheritable(False)  # the programs that user code starts have nothing to do with them
    return found


def _set_title(link: Link) -> None:
    try:
        from setproctitle import setproctitle  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    except ImportError:
        return
    setproctitle(f"peerd: {link.slot} ({link.node})")


def _run(plan: Mapping[str, Any], link: Link) -> int:
    try:
        service = _load(plan)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code: whatever it raises, the boot has failed
        show_failed_boot(error)
        link.send({"type": "boot-failed", "error": f"cannot load {plan['entry']}: {words(error)}"})
        return exit_codes.BOOT_FAILED
    gc_tuning.settle()
    try:
        return asyncio.run(live(service, link))
    except (SystemExit, KeyboardInterrupt) as error:
        # Raised in any task these end the whole loop; nobody has asked for that, so it is no way to leave for good.
        show(error)
        link.send({"type": "crashed", "error": f"{words(error)} was raised inside the event loop"})
        return exit_codes.CRASHED


def _load(plan: Mapping[str, Any]) -> Service:
    add_project(plan["project_directory"])
    module, _, name = plan["entry"].partition(":")
    make = getattr(importlib.import_module(module), name)
    payload = plan["payload"]
    return cast("Service", make({**payload, "slot": plan["slot"]} if isinstance(payload, dict) else payload))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
