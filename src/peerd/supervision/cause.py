"""Why a process has died: what its death report says, for people and for the agent."""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass

from peerd.runtime import exits

EXIT = "exit"
SIGNAL = "signal"
TAINTED = "tainted"
BOOT_FAILED = "boot-failed"
KILLED_AFTER_GRACE = "killed-after-grace"


@dataclass(frozen=True, slots=True)
class Cause:
    """One of the kinds above, the exit status or the signal's name, and all of it in words."""

    kind: str
    status: int | None
    signal: str | None
    text: str

    def to_json(self) -> dict[str, object]:
        """Return it as it stands in a death report."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Story:
    """What the master knows of a process when it dies."""

    returncode: int
    """As `subprocess` has it: a signal's number is negative."""
    ready: bool = False
    asked_to_stop: bool = False
    out_of_time: bool = False
    """It did not end within its grace (or its boot timeout), and the master has killed it."""
    tainted: bool = False
    error: str = ""
    """The process's own words."""


def cause_of(story: Story) -> Cause:
    """Return the cause of a death.

    Example:
        >>> cause_of(Story(returncode=-9, ready=True)).text
        'killed by SIGKILL'
    """
    number = signal_name(-story.returncode) if story.returncode < 0 else None
    status = story.returncode if story.returncode >= 0 else None
    ended = f"killed by {number}" if number else f"exit status {status}"
    kind, text = _kind_and_text(story, ended, number)
    return Cause(kind, status, number, f"{text}: {story.error}" if story.error else text)


def _kind_and_text(story: Story, ended: str, number: str | None) -> tuple[str, str]:
    if not story.ready and not story.asked_to_stop:
        if story.out_of_time:
            return BOOT_FAILED, "killed, for it did not become ready in time"
        return SIGNAL if number else BOOT_FAILED, f"{ended} before it was ready"
    if story.out_of_time or story.returncode == exits.OUT_OF_TIME:
        return KILLED_AFTER_GRACE, f"did not end within its grace ({ended})"
    if story.tainted:
        return TAINTED, f"tainted ({ended})"
    return SIGNAL if number else EXIT, ended


def signal_name(number: int) -> str:
    """Return a signal's name, such as `SIGKILL`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
