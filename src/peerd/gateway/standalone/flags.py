"""The flags of beanstalkd 1.13: letters that may be joined (`-VF`), with values behind them or as the next argument.

Nothing is loaded here, see the package.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final, NoReturn

PROGRAM: Final = "peerd-beanstalkd"
MAX_JOB_SIZE: Final = 64 * 2**20
"""The largest value of -z, in bytes: the largest body of a task. beanstalkd's is 1 GiB."""
DEFAULT_ADDRESS: Final = "127.0.0.1"
DEFAULT_PORT: Final = "11300"
DEFAULT_JOB_SIZE: Final = 65_535
DEFAULT_LOG_SIZE: Final = 10 * 2**20
LOG_SIZE_UNIT: Final = 4096
DEFAULT_SYNC_INTERVAL: Final = 0.05
WRONG_USAGE: Final = 5
"""The exit status for flags that are not understood, as of beanstalkd."""
WITH_VALUE: Final = "bflpsuz"
USAGE: Final = f"""\
usage: {PROGRAM} [FLAGS]

 -l ADDR   listen on this address, or on a unix socket: unix:/path (default {DEFAULT_ADDRESS}; 0.0.0.0 is every address:
           there is no authentication, so let only trusted networks reach it)
 -p PORT   listen on this TCP port (default {DEFAULT_PORT})
 -b DIR    keep the jobs in DIR, in a SQLite file; without it they end with the process
 -f MS     write changes to the disk at most once in so many milliseconds (default 50);
           with -f 0 each change is on the disk before its answer
 -F        leave it to the system when changes are written to the disk
 -s BYTES  size to which SQLite's log grows before it is merged into the file (default {DEFAULT_LOG_SIZE})
 -z BYTES  the largest job (default {DEFAULT_JOB_SIZE}, at most {MAX_JOB_SIZE})
 -u USER   become this user, and its group
 -c, -n    accepted, without effect
 -V        print what happens; -VV prints more
 -v        print the version
 -h        print this

 SIGUSR1   accept no more jobs; SIGTERM or SIGINT stop
"""


class Flags:
    """What the command line says, or the defaults."""

    address: str = DEFAULT_ADDRESS
    port: str = DEFAULT_PORT
    max_job_size: int = DEFAULT_JOB_SIZE
    folder: str | None = None
    """Where the jobs are kept; None: in memory."""
    sync_interval: float | None = DEFAULT_SYNC_INTERVAL
    """Seconds between two writes to the disk; 0: each change is written before its answer; None: never."""
    log_size: int = DEFAULT_LOG_SIZE
    user: str | None = None
    verbosity: int = 0
    names_address: bool = False
    """Whether an address or a port was given."""

    def __init__(self) -> None:
        self.warnings: list[str] = []


class ProgramExit(Exception):
    """The program is to end, with a status and a text: for stdout if it is what was asked for, else for stderr."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text
        super().__init__(text)


def parse_flags(arguments: Sequence[str], version: str) -> Flags:
    """The flags of a command line.

    Raises:
        ProgramExit: a flag is not understood, or asks for the version or the usage.

    >>> flags = parse_flags(["-VFp", "11301", "-bjobs"], "1")
    >>> flags.port, flags.folder, flags.sync_interval, flags.max_job_size
    ('11301', 'jobs', None, 65535)
    """
    flags = Flags()
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        if not argument.startswith("-") or argument == "-":
            _refuse(f"unknown argument: {argument}")
        joined = argument[1:]
        while joined:
            flag, joined = joined[0], joined[1:]
            if flag in WITH_VALUE:
                value = joined or (remaining.pop(0) if remaining else _refuse(f"flag requires an argument: -{flag}"))
                joined = ""
                _set_value(flags, flag, value)
            else:
                _set_flag(flags, flag, version)
    return flags


def _set_flag(flags: Flags, flag: str, version: str) -> None:
    match flag:
        case "F":
            flags.sync_interval = None
        case "V":
            flags.verbosity += 1
        case "v":
            raise ProgramExit(0, f"beanstalkd {version}\n")
        case "h":
            raise ProgramExit(0, USAGE)
        case "c" | "n":
            flags.warnings.append(f"-{flag} has no effect: the log is always compacted")
        case _:
            _refuse(f"unknown flag: -{flag}")


def _set_value(flags: Flags, flag: str, value: str) -> None:
    match flag:
        case "l":
            flags.address, flags.names_address = value, True
        case "p":
            flags.port, flags.names_address = value, True
        case "b":
            flags.folder = value
        case "u":
            flags.user = value
        case "f":
            flags.sync_interval = _size(value) / 1000
        case "s":
            flags.log_size = -(-_size(value) // LOG_SIZE_UNIT) * LOG_SIZE_UNIT
        case _:
            _set_max_job_size(flags, value)


def _set_max_job_size(flags: Flags, value: str) -> None:
    """-z: a size that is too large, or below zero, is the largest one."""
    size = MAX_JOB_SIZE + 1 if value.startswith("-") and value[1:].isdigit() else _size(value)
    flags.max_job_size = min(size, MAX_JOB_SIZE)
    if size > MAX_JOB_SIZE:
        flags.warnings.append(f"maximum job size was set to {MAX_JOB_SIZE}")


def _size(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        _refuse(f"invalid size: {value}")
    return int(value)


def _refuse(problem: str) -> NoReturn:
    raise ProgramExit(WRONG_USAGE, f"{PROGRAM}: {problem}\n{USAGE}")
