"""Numbers that JSON does not have: its writers make null of them, and nobody hears of it."""

from __future__ import annotations

import math
from typing import Any, Final

NO_NUMBER: Final = "holds inf or nan, which JSON does not have"


def holds_no_number(value: Any) -> bool:
    """Whether inf, -inf or nan is anywhere in a value that JSON can hold.

    >>> holds_no_number({"a": [1.5, None]}), holds_no_number({"a": (0.0, float("nan"))})
    (False, True)
    """
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(map(holds_no_number, value.values()))
        case list() | tuple():
            return any(map(holds_no_number, value))
        case _:
            return False
