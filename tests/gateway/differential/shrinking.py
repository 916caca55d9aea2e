"""The shortest script that still shows a difference, as far as leaving out steps finds it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.gateway.differential.playing import Difference
from tests.gateway.differential.script import Script, is_sound

WITHIN: Final = 60.0
Play = Callable[[Script], Difference | None]


def shortest(name: str, script: Script, found: Difference, play: Play) -> str:
    """What differs, and what is left when steps are left out, many at once at first, as long as the rest differs."""
    deadline = time.monotonic() + WITHIN
    size = max(1, len(script) // 2)
    while size and time.monotonic() < deadline:
        for begin in range(len(script) - size, -1, -size):
            rest = script[:begin] + script[begin + size :]
            if time.monotonic() < deadline and is_sound(rest) and (difference := play(rest)) is not None:
                script, found = rest, difference
                break
        else:
            size //= 2
    steps = "\n".join(map(repr, script))
    return f"{name}: {found}\nthe script, for python -m tests.gateway.differential --replay FILE:\n\n{steps}\n"
