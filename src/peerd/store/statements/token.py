"""Tokens: who never heard an answer finds by one what it has written."""

from __future__ import annotations

import random


def new_token() -> int:
    """A token unlike any other in flight."""
    return random.SystemRandom().getrandbits(62) + 1
