"""JSON as a tree of elements that open and close, cut where it is large."""

from __future__ import annotations

import json
from typing import Any, Final

from markupsafe import Markup, escape

from peerd.web.pages.formats import visible

MOST_VALUES: Final = 1_000
"""Values of a tree; what follows is downloaded."""
MOST_DEPTH: Final = 20
MOST_TEXT: Final = 2_000
"""Characters of one text."""
OPEN_UNTIL: Final = 50
"""Values of an object or a list that is open at first."""


def json_tree(value: Any, id: str) -> Markup:  # noqa: A002 - as the element has it
    """A tree.

    >>> print(json_tree({"a": [1, "<b>"]}, "body"))
    <div class="tree"><details id="body-1" open><summary>{1}</summary><div><span class="key">a:</span> \
<details id="body-2" open><summary>[2]</summary><div><span class="key">0:</span> 1</div>\
<div><span class="key">1:</span> &#34;&lt;b&gt;&#34;</div></details></div></details></div>
    """
    writer = _Writer(id)
    shown = writer.write(value, 0)
    more = Markup('<p class="soft">The rest is left out: download it.</p>') if writer.is_cut else ""
    return Markup('<div class="tree">{}{}</div>').format(shown, more)


class _Writer:
    def __init__(self, id: str) -> None:  # noqa: A002
        self._id = id
        self._values = 0
        self._groups = 0
        self.is_cut = False

    def write(self, value: Any, depth: int) -> Markup:
        self._values += 1
        if isinstance(value, dict):
            return self._group(list(value.items()), "{}", depth)
        if isinstance(value, list):
            return self._group(list(enumerate(value)), "[]", depth)
        return Markup("{}").format(self._scalar(value))

    def _scalar(self, value: Any) -> str:
        text = json.dumps(value, ensure_ascii=False)
        if len(text) > MOST_TEXT:
            self.is_cut = True
            text = text[:MOST_TEXT] + "…"
        return visible(text)

    def _group(self, items: list[tuple[Any, Any]], brackets: str, depth: int) -> Markup:
        self._groups += 1
        number = self._groups
        if depth >= MOST_DEPTH:
            self.is_cut = True
            return Markup("{}").format(f"{brackets[0]}…{brackets[1]}")
        rows: list[Markup] = []
        for key, value in items:
            if self._values >= MOST_VALUES:
                self.is_cut = True
                break
            name = escape(visible(str(key)[:MOST_TEXT]))
            rows.append(Markup('<div><span class="key">{}:</span> {}</div>').format(name, self.write(value, depth + 1)))
        if not items:
            return Markup("{}").format(brackets)
        is_open = Markup(" open") if len(items) <= OPEN_UNTIL and depth < 3 else ""
        return Markup('<details id="{}-{}"{}><summary>{}{}{}</summary>{}</details>').format(
            self._id, number, is_open, brackets[0], len(items), brackets[1], Markup("").join(rows)
        )
