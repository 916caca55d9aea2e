"""Why a process has died: what its death report says, for people and for the agent."""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass

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
"""The last four are wishes: the master has asked it to stop for them."""

KIND_OF_RETIREMENT = {"tainted": TAINTED, "recycle": RECYCLED, "hung": HUNG}
"""What a process says when it wants to be replaced, and the kind of its death."""


@dataclass(frozen=True, slots=True)
class ExitCause:
    """One of the kinds above, the exit status or the signal's name, and all of it in words."""

    kind: str
    status: int | None
    signal: str | None
    text: str

    def to_json(self) -> dict[str, object]:
        """Return it as it stands in a death report."""
        return asdict(self)


def stop_reason(kind: str, text: str) -> ExitCause:
    """Return why a living process is asked to stop, before it has died of it."""
    return ExitCause(kind, None, None, text)


@dataclass(frozen=True, slots=True)
class ExitFacts:
    """What the master knows of a process when it dies."""

    returncode: int
    """As `subprocess` has it: a signal's number is negative."""
    ready: bool = False
    asked_to_stop: bool = False
    reason: ExitCause | None = None
    """Why it was asked, where it was not the node's stop."""
    out_of_time: bool = False
    """It did not end within its grace (or its boot timeout), and the master has killed it."""
    silent_for: float | None = None
    """Seconds that it had said nothing, for which the master has killed it."""
    out_of_memory: bool = False
    """The kernel has killed a process for want of memory just now."""
    retired: str = ""
    """`tainted`, `recycle` or `hung`, once the process has said so."""
    error: str = ""
    """The process's own words."""


def determine_cause(facts: ExitFacts) -> ExitCause:
    """Return the cause of a death.

    Example:
        >>> determine_cause(ExitFacts(returncode=-9, ready=True)).text
        'killed by SIGKILL'
        >>> determine_cause(ExitFacts(returncode=-9, ready=True, silent_for=60.0)).text
        'silent for 60 s (frozen, or its interpreter was held), and killed'
    """
    number = signal_name(-facts.returncode) if facts.returncode < 0 else None
    status = facts.returncode if facts.returncode >= 0 else None
    ended = f"killed by {number}" if number else f"exit status {status}"
    kind, text = _classify(facts, ended, number)
    return ExitCause(kind, status, number, f"{text}: {facts.error}" if facts.error else text)


def _classify(facts: ExitFacts, ended: str, number: str | None) -> tuple[str, str]:
    if facts.silent_for is not None:
        return SILENT, f"silent for {facts.silent_for:.0f} s (frozen, or its interpreter was held), and killed"
    if facts.out_of_memory and number == "SIGKILL" and not facts.out_of_time:
        return OUT_OF_MEMORY, f"{ended}: the kernel was out of memory"
    if not facts.ready and not facts.asked_to_stop:
        if facts.out_of_time:
            return BOOT_FAILED, "killed, for it did not become ready in time"
        return SIGNAL if number else BOOT_FAILED, f"{ended} before it was ready"
    return _classify_stop(facts, ended, number)


def _classify_stop(facts: ExitFacts, ended: str, number: str | None) -> tuple[str, str]:
    if facts.out_of_time or facts.returncode == exit_codes.OUT_OF_TIME:
        suffix = f", asked to for {facts.reason.text}" if facts.reason else ""
        return KILLED_AFTER_GRACE, f"did not end within its grace{suffix} ({ended})"
    if (
        facts.retired == "recycle"
        and facts.returncode not in (exit_codes.OK, exit_codes.RECYCLED)
        and not facts.asked_to_stop
    ):
        return SIGNAL if number else EXIT, f"{ended} while it was recycled"
    if facts.retired:
        return KIND_OF_RETIREMENT[facts.retired], f"{KIND_OF_RETIREMENT[facts.retired]} ({ended})"
    if facts.reason is not None:
        return facts.reason.kind, f"{facts.reason.text} ({ended})"
    return SIGNAL if number else EXIT, ended


def signal_name(number: int) -> str:
    """Return a signal's name, such as `SIGKILL`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
