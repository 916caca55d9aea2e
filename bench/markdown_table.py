"""Tables of Markdown that are tables to the eye too."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    r"""A table; its first row is the head, its first columns hold words, the others figures.

    >>> print("\n".join(aligned([("a", "b"), ("one", "2")])))
    | a   | b |
    |-----|--:|
    | one | 2 |
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("| " + " | ".join(cells) + " |")
    rule = ["-" * (width + 2) if place < left else "-" * (width + 1) + ":" for place, width in enumerate(widths)]
    return [lines[0], "|" + "|".join(rule) + "|", *lines[1:]]
