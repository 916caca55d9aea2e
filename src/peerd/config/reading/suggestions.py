"""Suggestions for mistyped words, by difflib."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The remedy for an unknown word: a similar known word, else all known words.

    >>> did_you_mean("wokers", ["node", "workers"])
    "did you mean 'workers'?"
    """
    words = sorted(known)
    return suggest_similar(word, words) or f"known are {', '.join(words)}"


def suggest_similar(word: str, known: Iterable[str]) -> str:
    """The remedy for a word that may be mistyped: a similar known word, or nothing.

    >>> suggest_similar("vidoe", ["video"]), suggest_similar("mail", ["video"])
    ("did you mean 'video'?", '')
    """
    from difflib import get_close_matches  # noqa: PLC0415 - loaded for a mistyped word alone

    found = get_close_matches(word[:100], sorted(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]!r}?" if found else ""
