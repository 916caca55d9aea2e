"""Starts a program (ffmpeg …) with resource limits, so that it ends with the process that started it.

A launcher in a bare interpreter sets the limits and the parent's death signal, which a fork would drop, and then
becomes the program under the same process id.

Start the program from a thread that lives as long as it, such as the main thread (an event loop's
`create_subprocess_exec`): on Linux the death signal is bound to the parent's *thread*.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NoReturn

from peerd.runtime.process.process_tree import die_with_parent

NOT_FOUND: Final = 127
"""Exit status when there is no such program, as of a shell."""
NOT_STARTED: Final = 126
"""Exit status when the program cannot be started, or its limits cannot be set."""

_ROOT: Final = str(Path(__file__).parents[2])
_START: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); from peerd.runtime.launch import main; main(sys.argv[1:])"
)


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Resource limits of a program; None is no limit.

    `cpu_seconds` is processor time (then SIGXCPU, and SIGKILL a second later), `memory_bytes` the address space,
    `file_bytes` the size of each file that it writes (then SIGXFSZ), `open_files` their number, `nice` is added to its
    niceness.
    """

    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    file_bytes: int | None = None
    open_files: int | None = None
    nice: int | None = None


def launch_command(argv: Sequence[str], *, limits: ResourceLimits | None = None, own_group: bool = False) -> list[str]:
    r"""Return the command line that starts a program which ends with this process.

    Args:
        argv: the program and its arguments.
        limits: on its resources.
        own_group: make it the leader of a process group of its own. A signal to this process's group then misses it,
            and its own child processes do not end with this process.

    Example:
        >>> import subprocess
        >>> subprocess.run(launch_command(["echo", "hello"], limits=ResourceLimits(nice=5)), capture_output=True).stdout
        b'hello\n'
    """
    how = json.dumps({"parent": os.getpid(), "own_group": own_group, "limits": asdict(limits or ResourceLimits())})
    return [sys.executable, "-I", "-S", "-c", _START, _ROOT, how, *argv]


def main(arguments: Sequence[str]) -> NoReturn:
    """The launcher: set the death signal and the limits, and become the program."""
    how = json.loads(arguments[0])
    argv = list(arguments[1:])
    try:
        if not die_with_parent(signal.SIGKILL, how["parent"]):
            sys.exit(NOT_STARTED)
        if how["own_group"]:
            os.setpgid(0, 0)
        _limit(ResourceLimits(**how["limits"]))
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores them, and so would the program
            signal.signal(number, signal.SIG_DFL)
        os.execvp(argv[0], argv)  # noqa: S606 - a shell is not needed
    except FileNotFoundError:
        sys.stderr.write(f"there is no program {argv[0]!r}\n")
        sys.exit(NOT_FOUND)
    except (OSError, ValueError, MemoryError) as error:
        sys.stderr.write(f"cannot start {argv[0]!r}: {error}\n")
        sys.exit(NOT_STARTED)


def _limit(limits: ResourceLimits) -> None:
    if limits.nice is not None:
        os.nice(limits.nice)
    if limits.cpu_seconds is not None:
        _set(resource.RLIMIT_CPU, math.ceil(limits.cpu_seconds), beyond=1)
    for limit, value in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
    ):
        if value is not None:
            _set(limit, value)


def _set(limit: int, value: int, beyond: int = 0) -> None:
    """Set a soft limit, and a hard one `beyond` it, both at most to the present hard limit."""
    _, hard = resource.getrlimit(limit)
    top = math.inf if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(limit, (int(min(value, top)), int(min(value + beyond, top))))
