"""Processes on Linux: parents, children and descendants; and programs (ffmpeg …) that end with who started them.

Where there is no /proc, the lists are empty; where there is no prctl, its calls do nothing, and the end of file on the
link replaces the death signal.

A program is started by a launcher in a bare interpreter, which sets its resource limits and the parent's death signal
that a fork would drop, and then becomes the program under the same process id. Start it from a thread that lives as
long as it, such as the main thread (an event loop's `create_subprocess_exec`): on Linux the death signal is bound to
the parent's *thread*.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import resource
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NoReturn

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Signals that stop a node; a second one stops it without grace."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


def die_with_parent(number: signal.Signals, parent: int) -> bool:
    """Have the kernel send this process a signal when its parent ends; return whether the parent still exists.

    The signal is bound to the **thread** that started this process: start it from a thread that lives as long as the
    parent, such as the main thread. Call this after exec, because fork and setuid programs drop it. Raises OSError.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def become_subreaper() -> None:
    """Make this process the parent of all its descendants whose parents end. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, argument: int) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def children(parent: int) -> list[int]:
    """The process ids of a process's children, zombies included."""
    return _children_by_parent().get(parent, [])


def descendants(ancestor: int) -> list[int]:
    """The process ids of all descendants of a process, level by level."""
    children_of = _children_by_parent()
    found = list(children_of.get(ancestor, []))
    for pid in found:  # grows during the iteration
        found.extend(children_of.get(pid, []))
    return found


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process, so that it cannot run."""
    try:
        return _stat_fields(Path(f"/proc/{pid}/stat"))[0] in {"T", "t"}
    except OSError:
        return False


def kill_processes(pids: Iterable[int]) -> None:
    """Kill processes that may have ended already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _children_by_parent() -> dict[int, list[int]]:
    children_of = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process may end meanwhile
            children_of[int(_stat_fields(entry)[1])].append(int(entry.parent.name))
    return children_of


def _stat_fields(path: Path) -> list[str]:
    """The fields after the command's name, which stands in parentheses and may hold any character."""
    return path.read_text(errors="replace").rpartition(")")[2].split()


# ---------------------------------------------------------------- programs


NOT_FOUND: Final = 127
"""Exit status when there is no such program, as of a shell."""
NOT_STARTED: Final = 126
"""Exit status when the program cannot be started, or its limits cannot be set."""

_ROOT: Final = str(Path(__file__).parents[2])
_START: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); from peerd.runtime.os_processes import main; main(sys.argv[1:])"
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
