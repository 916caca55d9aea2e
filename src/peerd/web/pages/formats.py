"""How values look on a page: times, durations, numbers, sizes and names, and JSON as a tree, cut where it is large.

They are filters of the templates. What comes from a task or a node may be anything; these functions make it short and
let no character change the direction or the lines of the text around it. Markup is escaped by Jinja, not here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup, escape

from peerd.domain.quoting import escape_line, escape_text

NONE: Final = "–"
"""Stands for a value that is not there."""
MOST_TEXT: Final = 4_000
"""Characters of a text that has no other bound."""
MAX_NAME: Final = 60
"""Characters of a name in a table."""
SIZES: Final = ("B", "kB", "MB", "GB", "TB")
ELLIPSIS: Final = "…"
LONG_WORD: Final = 24
"""Characters of a word that fits into each table."""


def visible(text: object, most: int = MOST_TEXT) -> str:
    r"""A text in which no character is invisible or changes its direction: such a one is written as its number.

    Args:
        text: of any length.
        most: characters that are shown of it.

    >>> visible("a\x00b\u202ec"), visible("line\nline"), visible("long", 3)
    ('a\\x00b\\u202ec', 'line\nline', 'lon…')
    """
    whole = str(text)
    shown = escape_text(whole[:most])
    return shown if len(whole) <= most else shown + ELLIPSIS


def one_line(text: object, most: int = 200) -> str:
    r"""The beginning of a text, on one line.

    >>> one_line("first\n  second"), one_line("x" * 300, 5)
    ('first second', 'xxxx…')
    """
    shown = " ".join(visible(str(text)[: 4 * most], 4 * most).split())
    return shown if len(shown) <= most and len(str(text)) <= 4 * most else shown[: most - 1] + ELLIPSIS


def name(text: object) -> str:
    r"""A name in a table: its middle is left out if it is long, because names differ at their ends.

    >>> name("mail"), len(name("x" * 200)), name("two\nlines")
    ('mail', 60, 'two\\nlines')
    """
    shown = one_line(escape_line(str(text)[: 40 * MAX_NAME]), 10 * MAX_NAME)
    if len(shown) <= MAX_NAME:
        return shown
    half = (MAX_NAME - 1) // 2
    return shown[: MAX_NAME - 1 - half] + ELLIPSIS + shown[-half:]


def number(value: float | None) -> str:
    """A count, with thin spaces between thousands; other numbers with three digits that matter.

    >>> number(1234567), number(0.123456), number(12.5), number(None)
    ('1\u2009234\u2009567', '0.123', '12.5', '–')
    """
    if value is None:
        return NONE
    if value == int(value):
        return f"{int(value):,}".replace(",", "\u2009")
    if abs(value) >= 1000:
        return number(round(value))
    return f"{value:.3g}"


def rate(per_second: float | None) -> str:
    """A rate, always of a minute, so that rates can be compared.

    >>> rate(12.34), rate(0.05), rate(0.0005), rate(0)
    ('740/min', '3/min', '0.03/min', '0')
    """
    if not per_second:
        return NONE if per_second is None else "0"
    return f"{number(float(f'{60 * per_second:.3g}'))}/min"


def size(octets: int | None) -> str:
    """A size in bytes.

    >>> size(999), size(1_500_000), size(None)
    ('999 B', '1.5 MB', '–')
    """
    if octets is None:
        return NONE
    amount = float(octets)
    for unit in SIZES:
        if amount < 1000 or unit == SIZES[-1]:
            return f"{number(amount) if unit == SIZES[0] else f'{amount:.3g}'} {unit}"
        amount /= 1000
    raise AssertionError


def duration(seconds: float | None) -> str:
    """A duration, in its two largest units.

    >>> duration(0.0123), duration(7.3), duration(75), duration(4000), duration(200_000), duration(None)
    ('12 ms', '7.3 s', '1 min 15 s', '1 h 6 min', '2 d 7 h', '–')
    """
    if seconds is None:
        return NONE
    if seconds < 1:
        return "0 s" if seconds <= 0 else f"{max(1, round(seconds * 1000))} ms"
    if seconds < 60:
        return f"{seconds:.1f} s".replace(".0 ", " ")
    whole = int(seconds)
    for large, small, large_name, small_name in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large} {large_name}" + (f" {rest} {small_name}" if rest else "")
    raise AssertionError


def age(seconds: float | None) -> str:
    """A duration without the seconds beyond a minute, so that what is read again and again rarely changes.

    >>> age(9.7), age(587), age(4000), age(None)
    ('9 s', '9 min', '1 h 6 min', '–')
    """
    whole = None if seconds is None else int(seconds)
    return duration(whole if whole is None or whole < 60 else whole - whole % 60)


def percent(part: float | None) -> str:
    """A part of 1.

    >>> percent(0.256), percent(0.0004), percent(None)
    ('26 %', '0.04 %', '–')
    """
    if part is None:
        return NONE
    shown = part * 100
    return f"{shown:.0f} %" if shown == 0 or shown >= 1 else f"{shown:.2g} %"


def instant(at: datetime | None) -> str | Markup:
    """A moment in UTC; the script of the pages adds the viewer's own time.

    >>> print(instant(datetime(2026, 11, 21, 9, 0, 5, tzinfo=UTC)))
    <time datetime="2026-11-21T09:00:05Z">2026-11-21 09:00:05</time>
    """
    if at is None:
        return NONE
    moment = at.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        moment.strftime("%Y-%m-%dT%H:%M:%SZ"), moment.strftime("%Y-%m-%d %H:%M:%S")
    )


def ago(at: datetime | None, now: datetime) -> str | Markup:
    """How long ago a moment was, or how far ahead it is; the moment itself is its title.

    >>> print(ago(datetime(2026, 11, 21, 9, 0, tzinfo=UTC), datetime(2026, 11, 21, 9, 1, tzinfo=UTC)))
    <time datetime="2026-11-21T09:00:00Z" title="2026-11-21 09:00:00 UTC" data-ago>1 min ago</time>
    """
    if at is None:
        return NONE
    moment = at.astimezone(UTC)
    past = (now - moment).total_seconds()
    text = f"{age(past)} ago" if past >= 0 else f"in {age(-past)}"
    return Markup('<time datetime="{}" title="{} UTC" data-ago>{}</time>').format(
        moment.strftime("%Y-%m-%dT%H:%M:%SZ"), moment.strftime("%Y-%m-%d %H:%M:%S"), text
    )


def is_long(content: object) -> bool:
    """Whether a cell has a word that may be broken, because its column would be too wide.

    >>> is_long("disk-unusable of alpha"), is_long(Markup("<a href='/queues/show?name=x'>x</a>")), is_long("x" * 40)
    (False, False, True)
    """
    text = content.striptags() if isinstance(content, Markup) else str(content)
    return any(len(word) > LONG_WORD for word in text.split())


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    one.__name__: one for one in (visible, one_line, name, number, rate, size, duration, age, percent, instant, ago)
}


# ---------------------------------------------------------------- JSON as a tree


MOST_VALUES: Final = 1_000
"""Values of a tree; what follows is downloaded."""
MOST_DEPTH: Final = 20
MOST_TREE_TEXT: Final = 2_000
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
        if len(text) > MOST_TREE_TEXT:
            self.is_cut = True
            text = text[:MOST_TREE_TEXT] + "…"
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
            name = escape(visible(str(key)[:MOST_TREE_TEXT]))
            rows.append(Markup('<div><span class="key">{}:</span> {}</div>').format(name, self.write(value, depth + 1)))
        if not items:
            return Markup("{}").format(brackets)
        is_open = Markup(" open") if len(items) <= OPEN_UNTIL and depth < 3 else ""
        return Markup('<details id="{}-{}"{}><summary>{}{}{}</summary>{}</details>').format(
            self._id, number, is_open, brackets[0], len(items), brackets[1], Markup("").join(rows)
        )
