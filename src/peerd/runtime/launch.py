"""Starts a program (ffmpeg …) so that it ends with the process that started it, within limits.

The program is started through a small launcher in a bare interpreter, which sets the limits and the parent's death
signal after fork and exec, where it is safe and lasts, and becomes the program. It has the same process id.

Start it from a thread that lives as long as the program: on Linux the death signal is bound to the parent's *thread*.
The main thread (an event loop's `create_subprocess_exec`) is right; a pool's thread that ends before is not.
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

from peerd.runtime.process.pdeathsig import die_with_parent

NOT_FOUND: Final = 127
"""Exit status when there is no such program, as a shell has it."""

NOT_STARTED: Final = 126
"""Exit status when the program cannot be started, or its limits cannot be set."""

_ROOT: Final = str(Path(__file__).parents[2])
_START: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); from peerd.runtime.launch import main; main(sys.argv[1:])"
)


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What a program may use; None is no limit.

    `cpu_seconds` is processor time (then SIGXCPU, and SIGKILL a second later), `memory_bytes` its address space,
    `file_bytes` the size of each file that it writes (then SIGXFSZ), `open_files` their number, `nice` what is added to
    its niceness.
    """

    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    file_bytes: int | None = None
    open_files: int | None = None
    nice: int | None = None


def launch_command(argv: Sequence[str], *, limits: ResourceLimits | None = None, own_group: bool = False) -> list[str]:
    r"""Return the command line that starts a program bound to this process's life.

    Args:
        argv: the program and its arguments.
        limits: what it may use.
        own_group: make it the leader of a process group of its own. It is then missed by a signal to this process's
            group, and only itself, not what it starts, ends with this process.

    Example:
        >>> import subprocess
        >>> subprocess.run(launch_command(["echo", "hello"], limits=ResourceLimits(nice=5)), capture_output=True).stdout
        b'hello\n'
    """
    how = json.dumps({"parent": os.getpid(), "own_group": own_group, "limits": asdict(limits or ResourceLimits())})
    return [sys.executable, "-I", "-S", "-c", _START, _ROOT, how, *argv]


def main(arguments: Sequence[str]) -> NoReturn:
    """Be the launcher: bind, limit, and become the program."""
    how = json.loads(arguments[0])
    argv = list(arguments[1:])
    try:
        if not die_with_parent(signal.SIGKILL, how["parent"]):
            sys.exit(NOT_STARTED)
        if how["own_group"]:
            os.setpgid(0, 0)
        _limit(ResourceLimits(**how["limits"]))
        _restore_signals()
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted
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
    if limits.memory_bytes is not None:
        _set(resource.RLIMIT_AS, limits.memory_bytes)
    if limits.file_bytes is not None:
        _set(resource.RLIMIT_FSIZE, limits.file_bytes)
    if limits.open_files is not None:
        _set(resource.RLIMIT_NOFILE, limits.open_files)


def _set(what: int, value: int, beyond: int = 0) -> None:
    """Set a limit, at most to what we are allowed; the hard one may lie beyond the soft one."""
    _, hard = resource.getrlimit(what)
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    top = value + beyond if hard == resource.RLIM_INFINITY else min(value + beyond, hard)
    resource.setrlimit(what, (allowed, top))


def _restore_signals() -> None:
    """The interpreter ignores these two, and what is ignored stays so in the program."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
