"""Tokens: a process whose reply was lost finds by one the rows that it has written."""

from __future__ import annotations

import random


def new_token() -> int:
    """A token unlike any other in flight."""
    return random.SystemRandom().getrandbits(62) + 1
