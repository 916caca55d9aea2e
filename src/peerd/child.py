"""The entry point of every process that the master starts: `python -P -m peerd.child FD MASTER`.

It runs in a fresh interpreter, so that changed code is always read anew. FD is its end of the link with the master,
whose first frame is the plan; MASTER is the master's process id.
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from peerd.runtime.frames import receive
from peerd.runtime.observability.log_file import protect_output
from peerd.runtime.os_processes import die_with_parent
from peerd.runtime.process import exit_codes
from peerd.runtime.process.interpreter import add_project_folder, blocked_import, disable_gc, freeze_and_enable_gc
from peerd.runtime.process.life import SupervisedProcess, run_until_end
from peerd.runtime.process.link import Link
from peerd.runtime.process.uncaught_exceptions import describe_exception, log_boot_failure, log_exception


def main(fd: int, master: int) -> int:
    """Run the process of the plan; return its exit status."""
    master_socket = socket.socket(fileno=fd)
    master_socket.set_inheritable(False)
    if not die_with_parent(signal.SIGTERM, master):
        return exit_codes.MASTER_LOST
    faulthandler.enable()
    disable_gc()
    plan: Mapping[str, Any] | None = receive(master_socket)
    if plan is None:
        return exit_codes.MASTER_LOST
    protect_output()
    _start_logging(plan)
    identity = {field.name: plan[field.name] for field in fields(Link) if field.init}
    own = {"run_directory": Path(plan["run_directory"]), "sockets": _adopt_sockets(plan)}
    link = Link(master_socket, **identity | own)
    link.listen()
    _set_process_title(link)
    status = _run_process(plan, link)
    link.leave(status)
    return status


def _start_logging(plan: Mapping[str, Any]) -> None:
    with blocked_import("rich"):  # structlog would use it for tracebacks, which are plain text in our log
        from peerd.runtime.observability.log_output import configure_logging  # noqa: PLC0415 - imports structlog
    configure_logging("info", plan["log_format"], node=plan["node"], slot=plan["slot"])


def _adopt_sockets(plan: Mapping[str, Any]) -> dict[str, socket.socket]:
    sockets = {name: socket.socket(fileno=number) for name, number in plan["sockets"].items()}
    for one in sockets.values():
        one.set_inheritable(False)  # for programs that user code starts
    return sockets


def _set_process_title(link: Link) -> None:
    try:
        from setproctitle import setproctitle  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    except ImportError:
        return
    setproctitle(f"peerd: {link.slot} ({link.node})")


def _run_process(plan: Mapping[str, Any], link: Link) -> int:
    try:
        process = _create_process(plan)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything
        log_boot_failure(error)
        link.send({"type": "boot-failed", "error": f"cannot load {plan['entry']}: {describe_exception(error)}"})
        return exit_codes.BOOT_FAILED
    freeze_and_enable_gc()
    try:
        return asyncio.run(run_until_end(process, link))
    except (SystemExit, KeyboardInterrupt) as error:
        # Raised in any task these end the whole loop; that is a crash, not a voluntary exit.
        log_exception(error)
        link.send({"type": "crashed", "error": f"{describe_exception(error)} was raised inside the event loop"})
        return exit_codes.CRASHED


def _create_process(plan: Mapping[str, Any]) -> SupervisedProcess:
    os.chdir(plan["project_directory"])  # the master stays in the folder of an earlier release
    add_project_folder(plan["project_directory"])
    module, _, name = plan["entry"].partition(":")
    factory = getattr(importlib.import_module(module), name)
    payload = plan["payload"]
    return cast(
        "SupervisedProcess", factory({**payload, "slot": plan["slot"]} if isinstance(payload, dict) else payload)
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
