"""The shortest script that still shows a difference, as far as leaving out steps finds it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.gateway.differential.playing import Difference
from tests.gateway.differential.script import Script, is_sound, to_text

WITHIN: Final = 60.0
Play = Callable[[Script], Difference | None]


def shrink(script: Script, found: Difference, play: Play, within: float = WITHIN) -> tuple[Script, Difference]:
    """Leave out steps, many at once at first, as long as the rest shows a difference."""
    deadline = time.monotonic() + within
    size = max(1, len(script) // 2)
    while time.monotonic() < deadline:
        shorter = _shorter(script, size, play, deadline)
        if shorter is not None:
            script, found = shorter
        elif size == 1:
            break
        else:
            size = max(1, size // 2)
    return script, found


def _shorter(script: Script, size: int, play: Play, deadline: float) -> tuple[Script, Difference] | None:
    """The script without some `size` steps in a row that still shows a difference."""
    for begin in range(len(script) - size, -1, -size):
        if time.monotonic() > deadline:
            return None
        rest = script[:begin] + script[begin + size :]
        if rest and is_sound(rest) and (found := play(rest)) is not None:
            return rest, found
    return None


def describe(name: str, script: Script, difference: Difference) -> str:
    """What differs, and the script as a file for ``python -m tests.gateway.differential --replay FILE``."""
    return f"{name}: {difference}\nthe script, for --replay:\n\n{to_text(script)}\n"
