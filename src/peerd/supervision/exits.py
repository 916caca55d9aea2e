"""Exits of processes: their causes, as exit reports, alerts and `peerd status` give them, and what they leave behind.

What an ended process has left outside its process group, programs in sessions of their own, is killed. The master is
the subreaper, so orphans of its children become its own children. A variable in each child's environment, which
programs inherit, identifies the process that they come from: orphans of ended processes are killed, those of living
ones are not.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from peerd.runtime import os_processes
from peerd.runtime.process import exit_codes

EXIT = "exit"
SIGNAL = "signal"
TAINTED = "tainted"
RECYCLED = "recycled"
HUNG = "hung"
SILENT = "silent"
OUT_OF_MEMORY = "out-of-memory"
BOOT_FAILED = "boot-failed"
KILLED_AFTER_GRACE = "killed-after-grace"
REPLACED = "replaced"
MEMORY_LIMIT = "memory-limit"
CPU_LIMIT = "cpu-limit"
SCALED = "scaled"
"""The last four are reasons for which the master has asked the process to stop."""

_KIND_OF_RETIREMENT = {"tainted": TAINTED, "recycle": RECYCLED, "hung": HUNG}

_VMSTAT: Final = Path("/proc/vmstat")
_NAME: Final = "PEERD_PROCESS"
_MAX_ROUNDS: Final = 100


@dataclass(frozen=True, slots=True)
class ExitCause:
    """The cause of an exit: a kind, a description, and the exit status or the signal's name.

    The reason for which a running process is asked to stop has neither of the latter.
    """

    kind: str
    text: str
    status: int | None = None
    signal: str | None = None

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(eq=False, repr=False, kw_only=True)
class ProcessRecord:
    """What the master has recorded about a process, from which the cause of its exit follows.

    `returncode` is as of `subprocess`, where a signal's number is negative. `reason` is why the process was asked to
    stop; None if the node stops. It is `out_of_time` if the master has killed it because its grace, its boot timeout,
    or the time for its end was over; `killed_silence` is for how many seconds of silence the master has killed it. It
    `is_leaving` once it has reported that its work is over, and its interpreter ends. With `out_of_memory` the kernel
    has just killed a process because memory ran out. `retired` is `tainted`, `recycle` or `hung` once the process has
    asked to be replaced, and `error` what it has reported.
    """

    returncode: int = 0
    ready: bool = False
    asked_to_stop: bool = False
    reason: ExitCause | None = None
    out_of_time: bool = False
    is_leaving: bool = False
    killed_silence: float | None = None
    out_of_memory: bool = False
    retired: str = ""
    error: str = ""


def determine_cause(record: ProcessRecord) -> ExitCause:
    """Return the cause of an exit.

    Example:
        >>> determine_cause(ProcessRecord(returncode=-9, ready=True)).text
        'killed by SIGKILL'
        >>> determine_cause(ProcessRecord(returncode=-9, ready=True, killed_silence=60.0)).text
        'silent for 60 s (frozen, or its interpreter was blocked), and killed'
    """
    name = _signal_name(-record.returncode) if record.returncode < 0 else None
    status = record.returncode if record.returncode >= 0 else None
    ended = f"killed by {name}" if name else f"exit status {status}"
    kind, text = _classify(record, ended, SIGNAL if name else EXIT)
    return ExitCause(kind, f"{text}: {record.error}" if record.error else text, status, name)


def _classify(record: ProcessRecord, ended: str, plain_kind: str) -> tuple[str, str]:
    if record.killed_silence is not None:
        return SILENT, f"silent for {record.killed_silence:.0f} s (frozen, or its interpreter was blocked), and killed"
    if record.out_of_memory and record.returncode == -signal.SIGKILL and not record.out_of_time:
        return OUT_OF_MEMORY, f"{ended}: the kernel was out of memory"
    if not record.ready and not record.asked_to_stop:
        if record.out_of_time and not record.is_leaving:
            return BOOT_FAILED, "killed because it did not become ready in time"
        return SIGNAL if plain_kind == SIGNAL else BOOT_FAILED, f"{ended} before it was ready"
    return _classify_stop(record, ended, plain_kind)


def _classify_stop(record: ProcessRecord, ended: str, plain_kind: str) -> tuple[str, str]:
    if record.out_of_time and record.is_leaving and not (record.asked_to_stop or record.retired):
        return plain_kind, f"{ended}, since it did not end by itself"
    if record.out_of_time or record.returncode == exit_codes.OUT_OF_TIME:
        suffix = f", after a request to stop: {record.reason.text}" if record.reason else ""
        return KILLED_AFTER_GRACE, f"did not end within its grace{suffix} ({ended})"
    recycled = record.retired == "recycle" and not record.asked_to_stop
    if recycled and record.returncode not in (exit_codes.OK, exit_codes.RECYCLED):
        return plain_kind, f"{ended} while it was recycled"
    if record.retired:
        return _KIND_OF_RETIREMENT[record.retired], f"{_KIND_OF_RETIREMENT[record.retired]} ({ended})"
    return (record.reason.kind, f"{record.reason.text} ({ended})") if record.reason else (plain_kind, ended)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class OomKillCounter:
    """Detects kills by the kernel's out-of-memory killer, which a SIGKILL alone does not show.

    The counter of the process's own cgroup is exact (version 2: memory.events, version 1: memory.oom_control); the
    counter of the machine (/proc/vmstat), the fallback, includes other programs.

    Args:
        counters: files with a line `oom_kill N`; the first readable one is used. None for the system's.
    """

    def __init__(self, counters: list[Path] | None = None) -> None:
        self._counters = [*_own_cgroup_counters(), _VMSTAT] if counters is None else counters
        self._seen = self._count()

    def has_killed(self) -> bool:
        """Return whether the counter has grown since the last call."""
        before, self._seen = self._seen, self._count()
        return before is not None and self._seen is not None and self._seen > before

    def _count(self) -> int | None:
        return next((count for file in self._counters if (count := read_oom_kills(file)) is not None), None)


def read_oom_kills(file: Path) -> int | None:
    """Return the number in the line `oom_kill N` of a file; None without one."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(counts[0]) if counts and counts[0].isdigit() else None


def _own_cgroup_counters() -> Iterator[Path]:
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for group in groups:  # "0::/path" in version 2, "4:memory:/path" in version 1
        _, controllers, path = group.split(":", 2)
        if not controllers:
            yield Path(f"/sys/fs/cgroup{path}") / "memory.events"
        elif "memory" in controllers.split(","):
            yield Path(f"/sys/fs/cgroup/memory{path}") / "memory.oom_control"
            yield Path("/sys/fs/cgroup/memory/memory.oom_control")


# ---------------------------------------------------------------- leftover processes


def mark(slot: str, generation: int) -> dict[str, str]:
    """Return the environment variable that identifies a process by its master, slot and generation."""
    return {_NAME: f"{os.getpid()}/{slot}/{generation}"}


def kill_orphans(marks: Mapping[str, str], known: Collection[int]) -> None:
    """Kill all orphans that carry a mark, with their descendants; `known` are pids of supervised children."""
    wanted = f"{_NAME}={marks[_NAME]}".encode()
    _kill({pid for pid in _adopted(known) if wanted in _environment(pid)})


def kill_all_orphans() -> None:
    """Kill and reap the orphans of all processes of this master, after these have ended."""
    wanted = f"{_NAME}={os.getpid()}/".encode()
    for _ in range(_MAX_ROUNDS):  # a kill may make further orphans
        found = {pid for pid in _adopted(()) if any(entry.startswith(wanted) for entry in _environment(pid))}
        if not found:
            break
        _kill(found)
        time.sleep(0.01)
        reap(())


def reap(known: Collection[int]) -> None:
    """Reap adopted children that have ended, never a supervised one."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in known:
            return  # the pidfd of a supervised child wakes the loop, which calls this again afterwards
        os.waitpid(ended.si_pid, 0)


def _adopted(known: Collection[int]) -> list[int]:
    return [pid for pid in os_processes.children(os.getpid()) if pid not in known]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # it has ended, or belongs to another user


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        os_processes.kill_processes([*os_processes.descendants(pid), pid])
