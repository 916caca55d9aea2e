"""Numbers that JSON does not have: its writers make null of them, and nobody hears of it."""

from __future__ import annotations

import math
from typing import Any, Final

NON_FINITE_PROBLEM: Final = "holds inf or nan, which JSON does not have"


def contains_non_finite(value: Any) -> bool:
    """Whether inf, -inf or nan is anywhere in a value that JSON can hold.

    >>> contains_non_finite({"a": [1.5, None]}), contains_non_finite({"a": (0.0, float("nan"))})
    (False, True)
    """
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(map(contains_non_finite, value.values()))
        case list() | tuple():
            return any(map(contains_non_finite, value))
        case _:
            return False
