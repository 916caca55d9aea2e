"""A word for who mistyped one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The remedy for an unknown word: the one that is near, else all that there are.

    >>> did_you_mean("wokers", ["node", "workers"])
    "did you mean 'workers'?"
    """
    words = sorted(known)
    near = get_close_matches(word[:100], words, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(words)}"
