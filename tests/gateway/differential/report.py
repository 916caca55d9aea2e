"""A difference, in words and with the script that shows it."""

from __future__ import annotations

from tests.gateway.differential.playing import Difference
from tests.gateway.differential.script import Script, to_text


def describe(name: str, script: Script, difference: Difference) -> str:
    """What differs, and the script as a file for ``python -m tests.gateway.differential --replay FILE``."""
    return f"{name}: {difference}\nthe script, for --replay:\n\n{to_text(script)}\n"
