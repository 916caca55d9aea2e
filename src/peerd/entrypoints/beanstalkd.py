"""`peerd-beanstalkd`: a server that takes the place of beanstalkd, with its flags and its protocol.

It listens first and loads the rest of peerd then. Clients that connect meanwhile wait in the kernel's queue.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

from peerd.gateway.beanstalk import VERSION
from peerd.gateway.standalone_start import PROGRAM, Flags, Listeners, ProgramExit, open_listeners, parse_flags

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

NO_SUCH_USER = 33
CANNOT_BECOME_USER = 34


class EarlySignals:
    """Signals that arrive before the event loop runs: a stop ends the program, a drain is remembered."""

    def __init__(self) -> None:
        self.is_drained = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGUSR1, self._drain)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    def _drain(self, number: int, frame: FrameType | None) -> None:
        self.is_drained = True


def main() -> int:
    """The program; returns its exit status."""
    try:
        flags = parse_flags(sys.argv[1:], VERSION)
        signals = EarlySignals()
        listeners = open_listeners(flags, os.environ, os.getpid())
    except ProgramExit as end:
        return _end(end)
    try:
        _print_start(flags, listeners)
        become_user(flags.user)
        return _serve(flags, listeners, signals)
    except ProgramExit as end:
        return _end(end)
    finally:
        listeners.close()


def _end(end: ProgramExit) -> int:
    (sys.stderr if end.status else sys.stdout).write(end.text)
    return end.status


def _print_start(flags: Flags, listeners: Listeners) -> None:
    if listeners.are_inherited and flags.names_address:
        flags.warnings.append("it has inherited its sockets: -l and -p have no effect")
    for warning in flags.warnings:
        sys.stderr.write(f"{PROGRAM}: {warning}\n")
    if flags.verbosity:
        lines = [f"pid {os.getpid()}", *listeners.describe()]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


def become_user(name: str | None) -> None:
    """Become a user with its groups.

    Raises:
        ProgramExit: there is no such user, or only root could do it.
    """
    if name is None:
        return
    import pwd  # noqa: PLC0415 - rarely needed

    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise ProgramExit(NO_SUCH_USER, f"{PROGRAM}: there is no user {name}\n") from None
    try:
        if os.getuid() != user.pw_uid or os.geteuid() != user.pw_uid:
            os.initgroups(name, user.pw_gid)
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
    except OSError as error:
        raise ProgramExit(CANNOT_BECOME_USER, f"{PROGRAM}: cannot become {name}: {error.strerror}\n") from error


def _serve(flags: Flags, listeners: Listeners, signals: EarlySignals) -> int:
    gc.disable()  # imports make little garbage
    from peerd.entrypoints.standalone import serve  # noqa: PLC0415 - it loads all that the server needs

    return serve(flags, listeners, lambda: signals.is_drained)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory: a queue.py in it must not be taken for the standard library's
    sys.exit(main())
